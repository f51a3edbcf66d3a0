package schema

import "slices"

// OpName is the name of an operation as files write it.
type OpName string

// The operations. docs/plans.md has what each of them does.
const (
	Nop        OpName = "nop"
	Barrier    OpName = "barrier"
	Signal     OpName = "signal"
	Wait       OpName = "wait"
	RlxSignal  OpName = "rlxsignal"
	RlxWait    OpName = "rlxwait"
	Flush      OpName = "flush"
	SemAcquire OpName = "sem_acquire"
	SemRelease OpName = "sem_release"

	Copy OpName = "copy"
	Put  OpName = "put"
	Pws  OpName = "pws"  // put, then signal
	Pwsf OpName = "pwsf" // put, signal, and flush
	Get  OpName = "get"
	Re   OpName = "re"   // reduce
	Res  OpName = "res"  // reduce, and send the result
	Rre  OpName = "rre"  // read, and reduce
	Rres OpName = "rres" // read, reduce, and send the result

	CopyPkt       OpName = "cpkt"
	UnpackPkt     OpName = "upkt"
	PutPkt        OpName = "ppkt"
	ReadPutPkt    OpName = "rppkt"
	ReducePkt     OpName = "repkt"
	ReduceSendPkt OpName = "respkt"
	ReduceCopyPkt OpName = "recpkt"
	ReduceCSPkt   OpName = "recspkt" // reduce, keep as packets, and send as packets

	GroupReduceStore OpName = "glres"
	GroupReduce      OpName = "glre"
	GroupStore       OpName = "gstore"
	GroupStorePkt    OpName = "gstorepkt"

	Pipeline OpName = "pipeline"
)

// Ops lists the names of all operations.
func Ops() []OpName { return slices.Clone(operations) }

// exists reports whether there is such an operation.
func (n OpName) exists() bool { return slices.Contains(operations, n) }

var operations = []OpName{Nop, Barrier, Signal, Wait, RlxSignal, RlxWait, Flush, SemAcquire, SemRelease,
	Copy, Put, Pws, Pwsf, Get, Re, Res, Rre, Rres,
	CopyPkt, UnpackPkt, PutPkt, ReadPutPkt, ReducePkt, ReduceSendPkt, ReduceCopyPkt, ReduceCSPkt,
	GroupReduceStore, GroupReduce, GroupStore, GroupStorePkt, Pipeline}

// announced are operations that MSCCL++ has announced and no release of it has.
var announced = []OpName{"gsignal", "gwait", "grlxsignal", "grlxwait"}

// Reduces reports whether the operation combines elements.
func (n OpName) Reduces() bool {
	switch n {
	case Re, Res, Rre, Rres, ReducePkt, ReduceSendPkt, ReduceCopyPkt, ReduceCSPkt, GroupReduceStore, GroupReduce:
		return true
	}
	return false
}

// Packets reports whether the operation reads or writes packets.
func (n OpName) Packets() bool {
	switch n {
	case CopyPkt, UnpackPkt, PutPkt, ReadPutPkt, ReducePkt, ReduceSendPkt, ReduceCopyPkt, ReduceCSPkt, GroupStorePkt:
		return true
	}
	return false
}

// Data reports whether the operation has operands.
func (n OpName) Data() bool {
	switch n {
	case Nop, Barrier, Signal, Wait, RlxSignal, RlxWait, Flush, SemAcquire, SemRelease, Pipeline:
		return false
	}
	return true
}

// signals reports whether the operation is one of the waits and signals of channels.
func (n OpName) signals() bool {
	switch n {
	case Signal, Wait, RlxSignal, RlxWait, Flush:
		return true
	}
	return false
}
