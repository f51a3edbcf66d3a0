package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// liar changes the answers of a transport.
type liar struct {
	framework.Transport
	register func(r *framework.Registration)
	listen   func(cfg framework.EndpointConfig, e *framework.Endpoint)
	connect  func(id *framework.ID)
	attach   func(a *framework.Attachment)
}

func (l *liar) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := l.Transport.Register(ctx, seg)
	if err == nil && l.register != nil {
		l.register(&r)
	}
	return r, err
}

func (l *liar) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := l.Transport.Listen(ctx, cfg)
	if err == nil && l.listen != nil {
		l.listen(cfg, &e)
	}
	return e, err
}

func (l *liar) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	id, err := l.Transport.Connect(ctx, local, peers)
	if err == nil && l.connect != nil {
		l.connect(&id)
	}
	return id, err
}

func (l *liar) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a, err := l.Transport.Attach(ctx, conn, local, keys)
	if err == nil && l.attach != nil {
		l.attach(&a)
	}
	return a, err
}

func (l *liar) NewProxy(ctx context.Context) (framework.Proxy, error) {
	return l.Transport.(framework.Proxier).NewProxy(ctx)
}

// A transport that answers nonsense is found out before the rank acts on it, and
// its rank is the one to blame.
func TestTransportThatAnswersNonsense(t *testing.T) {
	step := func(s framework.Step) func(a *framework.Attachment) {
		return func(a *framework.Attachment) { a.Steps = append([]framework.Step{s}, a.Steps...) }
	}
	cases := map[string]struct {
		call string
		lie  liar
	}{
		"registration 0":      {"exchange", liar{register: func(r *framework.Registration) { r.ID = 0 }}},
		"connection 0":        {"exchange", liar{connect: func(id *framework.ID) { *id = 0 }}},
		"no steps":            {"exchange", liar{attach: func(a *framework.Attachment) { a.Steps = nil }}},
		"mapping twice":       {"exchange", liar{attach: func(a *framework.Attachment) { a.Steps = append(a.Steps, a.Steps[0]) }}},
		"mapping beyond":      {"exchange", liar{attach: step(framework.Step{Op: framework.StepMap, Mapping: 1})}},
		"mapping before":      {"exchange", liar{attach: step(framework.Step{Op: framework.StepMap, Mapping: -1})}},
		"unknown verb":        {"exchange", liar{attach: step(framework.Step{Op: 99})}},
		"object of a pair":    {"exchange", liar{attach: step(framework.Step{Op: framework.StepAdd})}},
		"bind before":         {"exchange", liar{attach: step(framework.Step{Op: framework.StepBind, Object: -1})}},
		"less than asked for": {"exchange", liar{attach: func(a *framework.Attachment) { a.Mappings[0].Bytes = 16 }}},
		"import beyond":       {"switch channel", liar{attach: step(framework.Step{Op: framework.StepImport, Object: 9})}},
		"no window": {"switch channel", liar{attach: func(a *framework.Attachment) {
			a.Steps = slices.DeleteFunc(a.Steps, func(s framework.Step) bool { return s.Op == framework.StepMap })
		}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := newRig(2)
			g.lies = true // hidden objects cannot be closed
			g.wrap = func(rank int, inner framework.Transport) framework.Transport {
				if rank == 0 {
					return inner
				}
				l := c.lie
				l.Transport = inner
				return &l
			}
			g.run(t, func(_ context.Context, comm *comm.Communicator) error {
				m, err := comm.Alloc(8192)
				if err != nil {
					return err
				}
				err = soon(func(ctx context.Context) error { return setUps[c.call](ctx, comm, m) })
				if err == nil && comm.Rank() == 0 {
					err = soon(comm.Barrier)
				}
				class := framework.ErrPeer
				if comm.Rank() == 1 {
					class = framework.ErrPlugin
				}
				return names(err, class, 1)
			})
		})
	}
}

// Two ranks that no transport can link hear why. Calls of the two leave the
// communicator as it was; a call of all cannot.
func TestNoCommonTransport(t *testing.T) {
	for what, listen := range map[string]func(cfg framework.EndpointConfig, e *framework.Endpoint){
		"elsewhere":  func(_ framework.EndpointConfig, e *framework.Endpoint) { e.Reach = []string{"elsewhere"} },
		"endpoint 0": func(_ framework.EndpointConfig, e *framework.Endpoint) { e.ID = 0 },
		"1 objects": func(cfg framework.EndpointConfig, e *framework.Endpoint) {
			if cfg.Kind != framework.KindSwitch {
				e.Create = []framework.Object{{Kind: framework.ObjectMulticast, Bytes: 1, Ranks: 2}}
			} else {
				e.Reach = nil
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			g := newRig(2)
			g.lies = true
			g.wrap = func(rank int, inner framework.Transport) framework.Transport {
				if rank == 0 {
					return inner
				}
				return &liar{Transport: inner, listen: listen}
			}
			g.run(t, func(_ context.Context, c *comm.Communicator) error {
				m, err := c.Alloc(8192)
				if err != nil {
					return err
				}
				for _, op := range []string{"memory channel", "port channel"} {
					err := soon(func(ctx context.Context) error { return setUps[op](ctx, c, m) })
					if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), what) {
						return fmt.Errorf("%s: %v, expected ErrUnavailable that says %q", op, err, what)
					}
				}
				err = soon(func(ctx context.Context) error { return setUps["switch channel"](ctx, c, m) })
				if !errors.Is(err, framework.ErrUnsupported) {
					return fmt.Errorf("switch: %v, expected ErrUnsupported", err)
				}
				if err := soon(c.Barrier); err != nil {
					return err
				}
				if err := soon(func(ctx context.Context) error { return setUps["exchange"](ctx, c, m) }); err == nil || c.Err() == nil {
					return fmt.Errorf("exchange: %v, and the communicator goes on: %v", err, c.Err())
				}
				return nil
			})
		})
	}
}
