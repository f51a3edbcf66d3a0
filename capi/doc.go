// Package capi is the C interface: its headers, the library in the folder libmscclpp, examples, and the tests of them,
// which use the library as programs in C do.
package capi

import "embed"

// Interface has the headers, and the linker's list of what the library exports. The library is built again when one
// of them changes.
//
//go:embed *.h libmscclpp/exports.map
var Interface embed.FS
