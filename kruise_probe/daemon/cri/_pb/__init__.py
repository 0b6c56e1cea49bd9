"""Generated from `cri.proto` by `hack/gen_cri`; never edited by hand."""
