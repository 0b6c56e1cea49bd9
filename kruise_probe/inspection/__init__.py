"""The logic of `status` and `explain`: takes objects, returns views.

Knows neither how objects are read nor how views are printed. It calls the controllers' own decision functions for
the desired state, so its answers match what the manager does.
"""
