package gpulink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Probe reports which GPUs there are and how they are joined. Without a driver the
// transport is not available, and the reason says what to do; unless the rank has a
// GPU all the same, about which then nothing else is known.
func (t *Transport) Probe(ctx context.Context, f framework.Facts) (framework.Live, error) {
	gpus, err := t.machine.all(ctx)
	if unavailable(err) {
		reason := strings.TrimPrefix(err.Error(), framework.ErrUnavailable.Error()+": ")
		reported := t.maker.reportedIdentity(f)
		if reported == (identity{}) || t.config.RequireLinks {
			return framework.Live{Reason: reason}, nil
		}
		return framework.Live{Available: true, Facts: map[string]string{"devices": reported.String(), "peer access": "unknown: " + reason}}, nil
	}
	if err != nil {
		return framework.Live{}, t.failure("probe", err)
	}
	key := t.maker.linkKey()
	facts := map[string]string{
		"devices":     names(gpus),
		"peer access": access(gpus),
		key:           links(gpus),
	}
	if f := gpus[0].Fabric; f != nil {
		facts["fabric"] = f.State
		if token := fabricToken(gpus[0]); token != "" {
			facts["fabric"] += " " + token
		}
	}
	live := framework.Live{Available: true, Facts: facts, WholeLines: t.maker.WholeLines && wholeLines(gpus)}
	if reported := t.maker.reportedIdentity(f); reported != (identity{}) {
		if own, ok := reported.among(gpus); ok {
			live.LinksKnown, live.Links = true, own.Pairs(gpus)
			facts[key+" of this GPU"] = topo.FormatPairs(live.Links)
		}
	}
	if t.config.RequireLinks && facts[key] == "none" && len(gpus) > 1 {
		live.Available = false
		live.Reason = fmt.Sprintf("require_%s is on, and the %d GPUs have no %s between them", key, len(gpus), t.maker.Link)
	}
	return live, nil
}

// names counts GPUs by name: "8 NVIDIA H200".
func names(gpus []topo.GPU) string {
	count, order := map[string]int{}, []string{}
	for _, g := range gpus {
		name := g.Name
		if g.MIG != nil {
			name += " in parts"
		}
		if count[name]++; count[name] == 1 {
			order = append(order, name)
		}
	}
	for i, name := range order {
		order[i] = fmt.Sprintf("%d %s", count[name], name)
	}
	return strings.Join(order, ", ")
}

// access sums up the pairs that may address each other's memory.
func access(gpus []topo.GPU) string {
	pairs, granted, reported, atomics, why := 0, 0, 0, 0, ""
	each(gpus, func(a, b topo.GPU) {
		pairs++
		x, ok := a.AccessTo(b)
		if !ok {
			return
		}
		reported++
		if !x.Granted() {
			why = x.Why()
			return
		}
		granted++
		if x.Atomics == topo.AccessOK {
			atomics++
		}
	})
	switch {
	case pairs == 0:
		return "one GPU alone"
	case reported < pairs:
		return "unknown"
	case granted == 0:
		return "none: " + why
	case granted < pairs:
		return fmt.Sprintf("%d of %d pairs; others: %s", granted/2, pairs/2, why)
	case atomics < pairs:
		return "all pairs, some without atomics"
	}
	return "all pairs"
}

// links sums up the links between GPUs.
func links(gpus []topo.GPU) string {
	least, most, switched := -1, 0, false
	each(gpus, func(a, b topo.GPU) {
		n, through := a.NVLinks(b)
		switched = switched || n > 0 && through == topo.Switch
		most = max(most, n)
		if least < 0 || n < least {
			least = n
		}
	})
	text := fmt.Sprintf("%d between every pair", most)
	switch {
	case most == 0:
		return "none"
	case least < most:
		text = fmt.Sprintf("%d to %d between pairs", least, most)
	}
	if switched {
		text += ", through switches"
	}
	return text
}

// wholeLines reports whether all pairs are joined by links, which carry stores of 128 bytes whole. A GPU may be
// alone here and have peers all the same, so no pair is no answer.
func wholeLines(gpus []topo.GPU) bool {
	whole := len(gpus) > 1
	each(gpus, func(a, b topo.GPU) {
		n, _ := a.NVLinks(b)
		whole = whole && n > 0
	})
	return whole
}

func each(gpus []topo.GPU, f func(a, b topo.GPU)) {
	for i, a := range gpus {
		for j, b := range gpus {
			if i != j {
				f(a, b)
			}
		}
	}
}

// unavailable reports whether an error says that there is no driver, or no GPU.
func unavailable(err error) bool { return errors.Is(err, framework.ErrUnavailable) }
