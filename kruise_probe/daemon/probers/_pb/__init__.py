"""Generated from `health.proto` by `hack/gen_cri`; never edited by hand."""
