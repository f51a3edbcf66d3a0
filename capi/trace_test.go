package capi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// A program in C chooses which of its calls have records, and marks what it does.
func TestTraceOfAProgram(t *testing.T) {
	t.Parallel()
	const ranks = 2
	memory, err := observe.New(ranks, false)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	env := []string{"MSCCLPP_TRANSPORT__SHM__IMAGES=" + collectivetest.HostImages(t), observe.Env + "=" + memory.Variable()}
	if out := jobWith(t, env, ranks, client(t), "traced"); strings.Count(out, "traced is done\n") != ranks {
		t.Errorf("%q: expected %d ranks to be done", out, ranks)
	}
	views := memory.Views()
	if len(views) != ranks {
		t.Fatalf("%d ranks in the memory, expected %d", len(views), ranks)
	}
	for _, v := range views {
		if i := v.Info(); i.On {
			t.Errorf("rank %d: records are on behind stop", i.Rank)
		}
		var calls []uint64
		var marks []string
		var cursor observe.Cursor
		for _, s := range v.Read(&cursor) {
			var parts []observe.Record
			for i := range s.Records {
				parts = s.Records[i].Parts(parts)
			}
			for _, x := range parts {
				switch x.Event {
				case observe.Call | observe.End:
					_, n := observe.CallOf(x.Call)
					calls = append(calls, n)
				case observe.Mark | observe.Instant:
					marks = append(marks, v.Name(int(x.Block)))
				}
			}
		}
		if want := []string{"step", "step", "step", "step", "step", "enough"}; !slices.Equal(marks, want) {
			t.Errorf("marks %q, expected %q", marks, want)
		}
		if fmt.Sprint(calls) != "[4 5 6 7 8]" {
			t.Errorf("calls %v, expected 4 to 8", calls)
		}
	}
}
