package transports

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestEmbed(t *testing.T) {
	for _, b := range List {
		tr, err := Embed(b.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := tr.Describe(t.Context())
		if err != nil || d.Name != b.Name {
			t.Errorf("%s describes itself as %q, %v", b.Name, d.Name, err)
		}
		for _, o := range b.Schema() {
			if o.Help == "" {
				t.Errorf("%s: option %s has no help", b.Name, o.Name)
			}
		}
	}
	if _, err := Embed("shm", map[string]any{"drain_spin": "5us", "drain_cpu": -1}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name    string
		options map[string]any
		want    string
	}{
		{"shmm", nil, "expected one of shm cudaipc"},
		{"shm", map[string]any{"drain_spinn": "1us"}, "drain_spin"},
		{"shm", map[string]any{"drain_spin": "fast"}, "drain_spin"},
		{"shm", map[string]any{"drain_cpu": -2}, "drain_cpu"},
		{"cudaipc", map[string]any{"shares": []any{"vmm", "pigeon"}}, "pigeon"},
		{"cudaipc", map[string]any{"require_nvlinc": true}, "require_nvlink"},
	} {
		if _, err := Embed(c.name, c.options); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v: expected ErrInvalid with %q", c.name, c.options, err, c.want)
		}
	}
}
