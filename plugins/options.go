package plugins

import (
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/options"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// Option describes one key of a transport's options.
type Option struct {
	Name    string // keys of nested tables are joined with "."
	Type    string // bool, int, uint, float, string, duration, "list of …", "table of …"
	Default string // as text; "" for none
	Help    string
}

// SchemaOf lists the options of C, which are its exported fields. The name of an option
// is the field's name in snake case or its tag `option`; its help is the tag `help`.
// Defaults come from the method `Defaults() C` if C has it. Nested structs are nested
// tables.
func SchemaOf[C any]() []Option {
	return schemaIn(schemaOut(options.Schema[C]()))
}

// Decode reads options strictly into C, for a transport that is embedded rather than
// served. Names, types and errors are the same. An unknown key is ErrInvalid, and the
// error names the nearest key. If C has the method `Validate() error`, Decode calls it.
func Decode[C any](values map[string]any) (C, error) {
	data, err := encode(values)
	if err != nil {
		var zero C
		return zero, err
	}
	return options.Decode[C](data)
}

func encode(values map[string]any) ([]byte, error) {
	if len(values) == 0 {
		return []byte("{}"), nil
	}
	data, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("%w: options: %w", framework.ErrInvalid, err)
	}
	return data, nil
}

// factory makes what a server needs from what a vendor wrote.
func factory[C any](create func(C) (framework.Transport, error)) wire.Factory {
	return wire.Factory{
		Options: schemaOut(options.Schema[C]()),
		Create: func(data []byte) (framework.Transport, error) {
			c, err := options.Decode[C](data)
			if err != nil {
				return nil, err
			}
			return create(c)
		},
	}
}

func schemaOut(in []options.Option) []*pb.Option {
	out := make([]*pb.Option, len(in))
	for i, o := range in {
		out[i] = &pb.Option{Name: o.Name, Type: o.Type, DefaultValue: o.Default, Help: o.Help}
	}
	return out
}

func schemaIn(in []*pb.Option) []Option {
	var out []Option
	for _, m := range in {
		out = append(out, Option{Name: m.GetName(), Type: m.GetType(), Default: m.GetDefaultValue(), Help: m.GetHelp()})
	}
	return out
}
