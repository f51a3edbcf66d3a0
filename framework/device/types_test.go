package device_test

import (
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

func TestDataTypesRoundTrip(t *testing.T) {
	sizes := map[device.DataType]int{device.Float64: 8, device.Float32: 4, device.BFloat16: 2, device.Float8E5M2: 1}
	for d := device.DataType(0); d < device.DataTypes; d++ {
		got, err := device.ParseDataType(d.String())
		if err != nil || got != d {
			t.Errorf("%v: parsed as %v, %v", d, got, err)
		}
		if want, ok := sizes[d]; ok && d.Size() != want {
			t.Errorf("%v: %d bytes, expected %d", d, d.Size(), want)
		}
	}
	for alias, want := range map[string]device.DataType{"half": device.Float16, "BFloat16": device.BFloat16, "int": device.Int32} {
		if got, err := device.ParseDataType(alias); err != nil || got != want {
			t.Errorf("%s: %v, %v; expected %v", alias, got, err, want)
		}
	}
	if _, err := device.ParseDataType("f99"); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("f99: %v, expected ErrInvalid", err)
	}
}

func TestOpsRoundTrip(t *testing.T) {
	for o := device.Op(0); o < device.Ops; o++ {
		if got, err := device.ParseOp(o.String()); err != nil || got != o {
			t.Errorf("%v: parsed as %v, %v", o, got, err)
		}
	}
	if got, err := device.ParseOp("mulsum"); err != nil || got != device.PreMulSum {
		t.Errorf("mulsum: %v, %v", got, err)
	}
	if _, err := device.ParseOp("xor"); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("xor: %v, expected ErrInvalid", err)
	}
	if device.DataType(99).String() != "type(99)" || device.Op(99).String() != "op(99)" {
		t.Error("unknown numbers have no name of their own")
	}
}
