package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// opened is a side together with what the suite has seen of it.
type opened struct {
	*Side
	ids *idSet
}

// Pool keeps sides that a passed test has left in order, for the next test: a
// plugin serves one communicator after another too, and to start one takes longer
// than most tests. A test that failed or killed takes its sides with it.
type Pool struct {
	mu   sync.Mutex
	free []*opened
}

func (t *T) take() *opened {
	p := t.pool
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		o := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return o
	}
	p.mu.Unlock()
	side, err := t.Options.Open(t.ctx)
	if err != nil {
		t.Fatalf("open a side: %v", err)
	}
	return &opened{Side: side, ids: NewIDs()}
}

// giveBack ends the use of a side by the test.
func (t *T) giveBack(o *opened, n int) {
	if !t.Failed() && o.alive() {
		t.pool.mu.Lock()
		t.pool.free = append(t.pool.free, o)
		t.pool.mu.Unlock()
		return
	}
	if err := o.end(); err != nil {
		t.Errorf("close the side of rank %d: %v", n, err)
	}
}

func (o *opened) alive() bool {
	if o.Process == nil {
		return true
	}
	select {
	case <-o.Process.Gone:
		return false
	default:
		return true
	}
}

// end closes the side. That a plugin is gone is no news here.
func (o *opened) end() error {
	if o.Close == nil {
		return nil
	}
	if err := o.Close(); err != nil && !errors.Is(err, framework.ErrPlugin) {
		return err
	}
	return nil
}

// Close ends all sides, at the end of the suite.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failures []error
	for _, o := range p.free {
		if err := o.end(); err != nil {
			failures = append(failures, fmt.Errorf("close a side: %w", err))
		}
	}
	p.free = nil
	return errors.Join(failures...)
}

// Describe learns the claims from a first side.
func (p *Pool) Describe(ctx context.Context, o Options) (_ Claims, failed error) {
	defer func() {
		if cause := recover(); cause != nil {
			failed = fmt.Errorf("learn the claims: panic: %v\n%s", cause, stack())
		}
	}()
	side, err := o.Open(ctx)
	if err != nil {
		return Claims{}, fmt.Errorf("open a side: %w", err)
	}
	p.free = append(p.free, &opened{Side: side, ids: NewIDs()})
	ctx, cancel := context.WithTimeout(ctx, o.CallLimit)
	defer cancel()
	d, err := side.Describe(ctx)
	if err != nil {
		return Claims{}, fmt.Errorf("describe: %w", err)
	}
	image, err := findActor(ctx, o, side.Transport, d)
	if err != nil {
		return Claims{}, err
	}
	engine, err := hasEngine(o)
	if err != nil {
		return Claims{}, err
	}
	m, err := look(ctx, o, side.Transport, d)
	if err != nil {
		return Claims{}, err
	}
	return Claims{Description: d, Process: side.Process != nil, Engine: engine, Actor: image, Memory: m}, nil
}

// hasEngine reports whether the device can drive port channels.
func hasEngine(o Options) (bool, error) {
	dev, err := o.Device(0)
	if err != nil {
		return false, fmt.Errorf("open the device of rank 0: %w", err)
	}
	defer dev.Close()
	_, ok := dev.(device.Engine)
	return ok, nil
}
