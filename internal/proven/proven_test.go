package proven

import (
	"errors"
	"path/filepath"
	"testing"
)

// A run is repeated until it has passed, for other arguments, for another executable, and
// where all is asked for.
func TestOnce(t *testing.T) {
	t.Setenv(Everything, "")
	dir, runs := t.TempDir(), 0
	failure := errors.New("wrong result")
	once := func(name, args string, result error, again bool) {
		t.Helper()
		before := runs
		proven, err := Once(filepath.Join(dir, name), args, func() error { runs++; return result })
		want := result
		if !again {
			want = nil
		}
		if !errors.Is(err, want) || (runs > before) != again || proven == again {
			t.Errorf("%s %s: %d runs more, proven %v, %v: expected that it runs: %v", name, args, runs-before, proven, err, again)
		}
	}
	once("a-1234", "seeds 3", failure, true)
	once("a-1234", "seeds 3", failure, true)
	once("a-1234", "seeds 3", nil, true)
	once("a-1234", "seeds 3", failure, false)
	once("a-1234", "seeds 4", nil, true)
	once("a-5678", "seeds 3", nil, true)
	t.Setenv(Everything, "1")
	once("a-1234", "seeds 3", failure, true)
}
