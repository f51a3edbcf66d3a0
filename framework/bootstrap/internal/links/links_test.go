package links

import (
	"context"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
)

// A full queue holds Send back, and a context ends that.
func TestSendEndsWithContext(t *testing.T) {
	l := New(1, nil)
	l.writing = true // by a stuck process
	spawn := func(func()) { t.Error("a second writer") }
	if err := l.Send(t.Context(), make([]byte, queueLimit), failure.New(), spawn); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := l.Send(ctx, []byte{1}, failure.New(), spawn); err == nil || ctx.Err() == nil {
		t.Errorf("send into a full queue: %v", err)
	}
	job := failure.New()
	job.Fail(framework.ErrPeer)
	if err := l.Send(context.Background(), []byte{1}, job, spawn); err != framework.ErrPeer {
		t.Errorf("send after the end of the job: %v", err)
	}
	if _, err := l.Push([]byte{1}, true, spawn); err != nil {
		t.Errorf("a control frame must always fit: %v", err)
	}
}
