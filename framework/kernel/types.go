package kernel

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// DataType is an element type. Its values are those of mscclpp::DataType.
type DataType uint32

// Element types.
const (
	Float32       DataType = 0
	Float16       DataType = 1
	BFloat16      DataType = 2
	Float64       DataType = 3
	Int8          DataType = 4
	Uint8         DataType = 5
	Int32         DataType = 6
	Uint32        DataType = 7
	Int64         DataType = 8
	Uint64        DataType = 9
	Float8E4M3    DataType = 10 // OCP, no infinities
	Float8E5M2    DataType = 11 // OCP
	Float8E4M3B15 DataType = 12 // software format, bias 15
	DataTypes              = 13
)

var typeNames = [DataTypes]string{"f32", "f16", "bf16", "f64", "i8", "u8", "i32", "u32", "i64", "u64", "e4m3", "e5m2", "e4m3b15"}
var typeSizes = [DataTypes]int{4, 2, 2, 8, 1, 1, 4, 4, 8, 8, 1, 1, 1}

// String returns the short name: "f32", "bf16", "e4m3".
func (t DataType) String() string {
	if t < DataTypes {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

// Size returns the bytes of one element.
func (t DataType) Size() int { return typeSizes[t] }

// ParseDataType accepts the short names and those of nccl-tests and PyTorch.
func ParseDataType(s string) (DataType, error) {
	name := strings.ToLower(s)
	if a, ok := typeAliases[name]; ok {
		name = a
	}
	for i, n := range typeNames {
		if n == name {
			return DataType(i), nil
		}
	}
	return 0, fmt.Errorf("%w: element type %q%s: expected one of %s", framework.ErrInvalid, s, suggest.Hint(suggest.Name(s, typeNames[:])), strings.Join(typeNames[:], " "))
}

var typeAliases = map[string]string{
	"float": "f32", "float32": "f32", "half": "f16", "float16": "f16", "bfloat16": "bf16",
	"double": "f64", "float64": "f64", "int8": "i8", "char": "i8", "uint8": "u8", "int32": "i32",
	"int": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
	"fp8e4m3": "e4m3", "f8e4m3": "e4m3", "float8_e4m3fn": "e4m3", "fp8e5m2": "e5m2", "f8e5m2": "e5m2", "float8_e5m2": "e5m2",
}

// Op is a reduction. Its values are those of mscclpp::ReduceOp.
type Op uint32

// Reductions.
const (
	Sum       Op = 0
	Prod      Op = 1
	Min       Op = 2
	Max       Op = 3
	Avg       Op = 4 // sum, then divided by the number of ranks; integers wrap, and round toward zero
	PreMulSum Op = 5 // every input is multiplied by the caller's scalar first
	Ops          = 6
)

var opNames = [Ops]string{"sum", "prod", "min", "max", "avg", "premulsum"}

// String returns the name: "sum", "avg".
func (o Op) String() string {
	if o < Ops {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint32(o))
}

// ParseOp is the inverse of Op.String; "mulsum" is accepted for premulsum.
func ParseOp(s string) (Op, error) {
	name := strings.ToLower(s)
	if name == "mulsum" {
		name = "premulsum"
	}
	for i, n := range opNames {
		if n == name {
			return Op(i), nil
		}
	}
	return 0, fmt.Errorf("%w: reduction %q%s: expected one of %s", framework.ErrInvalid, s, suggest.Hint(suggest.Name(s, opNames[:])), strings.Join(opNames[:], " "))
}
