// Package aside is how ranks of a communicator agree on something beside its calls.
package aside

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// Talk carries a few bytes between two ranks, in their order, for agreements that belong to no call and fail none. It is for one
// package that builds on the communicator.
type Talk struct {
	Boot framework.Bootstrap
	Life *life.Life
}

// SendAside gives another rank a few bytes.
func (t *Talk) SendAside(ctx context.Context, to int, data []byte) error {
	_, err := t.with(ctx, to, func(ctx context.Context) (framework.Parcel, error) {
		return framework.Parcel{}, t.Boot.Send(ctx, to, preamble.TagAside, framework.Parcel{Data: data})
	})
	return err
}

// RecvAside waits for some of another rank.
func (t *Talk) RecvAside(ctx context.Context, from int) ([]byte, error) {
	return t.with(ctx, from, func(ctx context.Context) (framework.Parcel, error) {
		return t.Boot.Recv(ctx, from, preamble.TagAside)
	})
}

// with ends with the communicator.
func (t *Talk) with(ctx context.Context, peer int, talk func(ctx context.Context) (framework.Parcel, error)) ([]byte, error) {
	if err := t.Life.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := t.Life.Bound(ctx)
	defer cancel()
	p, err := talk(ctx)
	if err != nil {
		return nil, t.Life.Blame("aside", peer, fmt.Errorf("message beside calls: %w", err))
	}
	p.Close() // there are no descriptors
	return p.Data, nil
}
