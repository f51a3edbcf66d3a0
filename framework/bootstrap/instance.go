package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
)

// instance tells a job from others of the same name, at the same address. Rank 0 draws it.
type instance struct {
	id    [16]byte
	known chan struct{} // closed when it is known
}

func newInstance() *instance { return &instance{known: make(chan struct{})} }

// set makes it known, once.
func (i *instance) set(id [16]byte) {
	i.id = id
	close(i.known)
}

// wait returns it. A rank may be called before it has heard from rank 0.
func (i *instance) wait(life context.Context) ([16]byte, error) {
	timer := time.NewTimer(handshakeTimeout)
	defer timer.Stop()
	select {
	case <-i.known:
		return i.id, nil
	case <-life.Done():
		return [16]byte{}, failure.ErrClosed
	case <-timer.C:
		return [16]byte{}, fmt.Errorf("%w: rank 0 has not answered this rank within %v", framework.ErrUnavailable, handshakeTimeout)
	}
}
