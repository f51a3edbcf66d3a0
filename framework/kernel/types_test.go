package kernel_test

import (
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func TestDataTypesRoundTrip(t *testing.T) {
	sizes := map[kernel.DataType]int{kernel.Float64: 8, kernel.Float32: 4, kernel.BFloat16: 2, kernel.Float8E5M2: 1}
	for d := kernel.DataType(0); d < kernel.DataTypes; d++ {
		got, err := kernel.ParseDataType(d.String())
		if err != nil || got != d {
			t.Errorf("%v: parsed as %v, %v", d, got, err)
		}
		if want, ok := sizes[d]; ok && d.Size() != want {
			t.Errorf("%v: %d bytes, expected %d", d, d.Size(), want)
		}
	}
	for alias, want := range map[string]kernel.DataType{"half": kernel.Float16, "BFloat16": kernel.BFloat16, "int": kernel.Int32} {
		if got, err := kernel.ParseDataType(alias); err != nil || got != want {
			t.Errorf("%s: %v, %v; expected %v", alias, got, err, want)
		}
	}
	if _, err := kernel.ParseDataType("f99"); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("f99: %v, expected ErrInvalid", err)
	}
}

func TestOpsRoundTrip(t *testing.T) {
	for o := kernel.Op(0); o < kernel.Ops; o++ {
		if got, err := kernel.ParseOp(o.String()); err != nil || got != o {
			t.Errorf("%v: parsed as %v, %v", o, got, err)
		}
	}
	if got, err := kernel.ParseOp("mulsum"); err != nil || got != kernel.PreMulSum {
		t.Errorf("mulsum: %v, %v", got, err)
	}
	if _, err := kernel.ParseOp("xor"); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("xor: %v, expected ErrInvalid", err)
	}
	if kernel.DataType(99).String() != "type(99)" || kernel.Op(99).String() != "op(99)" {
		t.Error("unknown numbers have no name of their own")
	}
}
