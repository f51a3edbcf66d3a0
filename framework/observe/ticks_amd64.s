#include "textflag.h"

// func counter() uint64
TEXT ·counter(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func release(word *uint64, value uint64)
TEXT ·release(SB), NOSPLIT, $0-16
	MOVQ word+0(FP), AX
	MOVQ value+8(FP), CX
	MOVQ CX, (AX)
	RET
