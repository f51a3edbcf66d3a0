// Package kernels holds the sources of the kernels for collectives. Images are built from them; Go sees
// only the headers that define arguments.
package kernels

import _ "embed"

// Arguments is the header of the arguments of all kernels.
//
//go:embed args.h
var Arguments string

// ExchangeArguments is the header of the arguments of the kernels between hosts. It includes the other one.
//
//go:embed exchange_args.h
var ExchangeArguments string
