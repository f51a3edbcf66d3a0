// Package gfxtest runs the collectives' kernels for AMD's GPUs in an interpreter: the committed machine code, launched
// by the collectives themselves, with all ranks in one process. It has tests alone.
//
// No GPU of AMD's has run this code. The rules that are applied here are those of the manuals and of LLVM's memory model.
package gfxtest
