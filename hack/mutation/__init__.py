"""Mutation testing of `hack/mutate`: changes the product in one place at a time, and runs the tests that call the changed function.

The tests are collected once. Each mutant is a fork of that process. The fork replaces the code of the changed functions
and runs the tests until one fails. Code that runs while a module is imported (constants, defaults, fields of classes)
cannot be replaced afterwards. Such a mutant is a fork of a process that has not imported the product yet.
"""
