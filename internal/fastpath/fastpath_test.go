package fastpath

import (
	"sync/atomic"
	"testing"
	"time"
)

// Go waits for a launch of C as long as the communicator works, and a while longer once it does not.
func TestTakeIsBounded(t *testing.T) {
	Enable()
	patience = Patience / 50
	defer func() { patience = Patience }()
	table := New(t, &Layout{})
	if table == nil {
		t.Fatal("no table")
	}
	if _, ok := table.Take(nil); !ok {
		t.Error("nobody is in a launch, and it was not taken")
	}
	atomic.StoreUint32(table.lock(), 1) // a launch that does not return
	asked := 0
	begin := time.Now()
	if _, ok := table.Take(func() bool { asked++; return asked > 50 }); ok {
		t.Error("it was taken from a launch that has not returned")
	}
	if took := time.Since(begin); took < patience || asked < 50 {
		t.Errorf("it gave up after %v, having asked %d times: expected %v behind the end of the communicator", took, asked, patience)
	}
	// A launch that returns in that time, which is long enough for a thread that waits for a processor.
	asked, patience = 0, Patience
	if _, ok := table.Take(func() bool {
		if asked++; asked == 3 {
			atomic.StoreUint32(table.lock(), 0)
		}
		return true
	}); !ok {
		t.Error("a launch returned, and it was not taken")
	}
	if table.Close(time.Now().Add(time.Minute)) != true {
		t.Error("it was not closed")
	}
}
