// Package kernels holds the sources of the kernel that runs execution plans. Images are built from them; Go sees only
// the header that defines its argument.
package kernels

import _ "embed"

// Arguments is the header of the argument of the kernel.
//
//go:embed plan_args.h
var Arguments string
