"""What stands and what is broken: objects in, findings out.

Owns the views behind `status` and `explain`. Must not know where objects come from nor how findings are shown, and
asks the controllers' own functions what should be, so that it never tells another story than they act on.
"""
