// Package kernels holds the sources of the kernels for experts. Images are built from them; Go sees only the header that
// defines their argument.
package kernels

import _ "embed"

// Arguments is the header of the argument of the kernels.
//
//go:embed moe_args.h
var Arguments string
