package choose

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A row of a type or an operation that there is not would fit no call.
func TestRowsOfNoTypeOrOperation(t *testing.T) {
	f32, last, noType, noOp := kernel.Float32, kernel.PreMulSum, kernel.DataType(kernel.DataTypes), kernel.Op(kernel.Ops)
	for _, c := range []struct {
		row  engine.Row
		text string
	}{
		{engine.Row{Type: &f32, Op: &last}, ""},
		{engine.Row{Type: &noType}, "type 13: expected one of 0 (f32) to 12 (e4m3b15)"},
		{engine.Row{Type: &f32, Op: &noOp}, "op 6: expected one of 0 (sum) to 5 (premulsum)"},
	} {
		c.row.Collective, c.row.Algorithm = collective.Reduce, Chain
		err := CheckRows([]engine.Row{c.row}, nil, nil)
		if (err == nil) != (c.text == "") || err != nil && (!strings.Contains(err.Error(), c.text) || !errors.Is(err, framework.ErrInvalid)) {
			t.Errorf("%v: expected %q", err, c.text)
		}
	}
}
