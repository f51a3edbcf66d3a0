// Package capi is the C interface: the headers mscclpp.h and mscclpp_inference.h, the library in the folder libmscclpp,
// examples, and the tests of them, which use the library as programs in C do.
package capi

import _ "embed"

// Header is mscclpp.h. The library is built again when it changes.
//
//go:embed mscclpp.h
var Header string

// InferenceHeader is mscclpp_inference.h. The library is built again when it changes.
//
//go:embed mscclpp_inference.h
var InferenceHeader string

// Exports is the linker's list of what the library exports. The library is linked again when it
// changes.
//
//go:embed libmscclpp/exports.map
var Exports string
