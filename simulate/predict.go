package simulate

import (
	"errors"
	"fmt"
	"math"
)

// Question is what is to be predicted.
type Question struct {
	Machine    Machine
	Cluster    Cluster
	Collective Collective
	Algorithm  Algorithm
	Bytes      int64 // of the larger buffer of a rank
	Pieces     int   // of the pipelined algorithms; 0: the power of two with the least time
}

// Prediction is the answer to a Question. Bytes and messages are those that the busiest
// rank sends; times are microseconds.
type Prediction struct {
	Question
	Time    float64 // simulated
	Formula float64 // closed form

	// LinkSteps and NetworkSteps are how many latencies follow each other.
	LinkSteps, NetworkSteps int

	LinkBytes, NetworkBytes float64
	NetworkMessages         float64

	// LinkBusy, NetworkBusy and ReduceBusy are how long a rank's link, its share of the
	// adapters and its reductions are busy.
	LinkBusy, NetworkBusy, ReduceBusy float64
}

// Bound names what takes most of the time: "links", "network" or "reduction" if one of
// these is busy for half of it, else "latency".
func (p Prediction) Bound() string {
	name, most := "latency", p.Time/2
	for _, r := range []struct {
		name string
		busy float64
	}{{"links", p.LinkBusy}, {"network", p.NetworkBusy}, {"reduction", p.ReduceBusy}} {
		if r.busy >= most {
			name, most = r.name, r.busy
		}
	}
	return name
}

const (
	maxPieces = 256
	minPiece  = 64 << 10 // bytes of a rank's part in a piece, unless there is one piece
	maxBytes  = 1 << 50
	maxTasks  = 1 << 22 // memory of a simulation: about 200 MB
	maxHops   = 1 << 28 // of a flat ring: about a second
	fewTasks  = 1 << 14 // beyond it, no more pieces are tried
	fewHops   = 1 << 20 // the same for the flat ring, whose hops cost less
)

// Predict simulates one algorithm.
func Predict(q Question) (Prediction, error) {
	if err := q.Machine.Validate(); err != nil {
		return Prediction{}, err
	}
	if err := supported(q.Collective, q.Algorithm, q.Cluster); err != nil {
		return Prediction{}, err
	}
	switch {
	case q.Cluster.hosts == 0:
		return Prediction{}, fmt.Errorf("no cluster: expected one of NewCluster: %w", ErrInvalid)
	case q.Bytes < 1 || q.Bytes > maxBytes:
		return Prediction{}, fmt.Errorf("%d bytes: expected 1 to %d: %w", q.Bytes, int64(maxBytes), ErrInvalid)
	case q.Pieces < 0 || q.Pieces > 1<<16:
		return Prediction{}, fmt.Errorf("%d pieces: expected 1 to %d, or 0 to have them chosen: %w", q.Pieces, 1<<16, ErrInvalid)
	}
	if q.Algorithm == FlatRing {
		return q.ring()
	}
	best, time, busy, err := q.pipeline()
	if err != nil {
		return Prediction{}, err
	}
	p := Prediction{Question: q, Time: time, Formula: best.formula()}
	p.Pieces = best.pieces
	p.LinkBusy, p.NetworkBusy, p.ReduceBusy = busy[onLink], busy[onNetwork], busy[onReducer]
	for k, blocks := range best.blocks {
		bytes, messages := sum(blocks)
		p.LinkBytes = max(p.LinkBytes, bytes[onLink]*float64(best.pieces))
		p.NetworkBytes = max(p.NetworkBytes, bytes[onNetwork]*float64(best.pieces))
		p.NetworkMessages = max(p.NetworkMessages, messages[onNetwork]*float64(best.pieces))
		links, network := q.Machine.steps(blocks, best.kinds[k].ranks)
		p.LinkSteps, p.NetworkSteps = max(p.LinkSteps, links), max(p.NetworkSteps, network)
	}
	return p, nil
}

// pipeline simulates the pieces asked for, or 1, 2, 4, … of them, and returns the fastest.
func (q *Question) pipeline() (best *pipeline, time float64, busy [resources]float64, err error) {
	plan := func(pieces int) *pipeline {
		return newPipeline(&q.Machine, q.Cluster, q.Collective, q.Algorithm, float64(q.Bytes), pieces)
	}
	pieces, most := 1, 1
	if q.Algorithm.Pipelined() {
		if most = q.mostPieces(); q.Pieces > 0 {
			pieces, most = q.Pieces, q.Pieces
		}
	}
	best = plan(pieces)
	if n := best.tasks(); n > maxTasks {
		return nil, 0, busy, fmt.Errorf("%s by %s in %d pieces over %d hosts: %d tasks to simulate, expected at most %d: ask for fewer pieces or hosts: %w",
			q.Collective, q.Algorithm, pieces, q.Cluster.hosts, n, maxTasks, ErrTooLarge)
	}
	time, busy = best.simulate()
	for pieces *= 2; pieces <= most; pieces *= 2 {
		p := plan(pieces)
		if p.tasks() > fewTasks {
			break
		}
		if t, b := p.simulate(); t < time {
			best, time, busy = p, t, b
		}
	}
	return best, time, busy, nil
}

// mostPieces is how many are worth trying: each has its own synchronization.
func (q *Question) mostPieces() int {
	return int(max(1, min(maxPieces, q.Bytes/int64(minPiece*q.Cluster.least()))))
}

// ring predicts the flat ring.
func (q Question) ring() (Prediction, error) {
	p := Prediction{Question: q}
	n, h := q.Cluster.Ranks(), q.Cluster.Hosts()
	p.Pieces = 1
	laps := 1
	reducing := 0
	var r ring
	var moved float64
	switch q.Collective {
	case Broadcast:
		p.Pieces = q.Pieces
		if p.Pieces == 0 {
			p.Pieces = q.chainPieces(n - 1)
		}
		if hops := (n - 1) * p.Pieces; hops > maxHops {
			return Prediction{}, q.tooManyHops(hops)
		}
		r = newRing(&q.Machine, q.Cluster, float64(q.Bytes)/float64(p.Pieces))
		p.Time, p.LinkBusy, p.NetworkBusy = r.chain(n-1, p.Pieces)
		p.Formula = r.chainFormula(n-1, p.Pieces)
		moved = float64(p.Pieces)
	default:
		if q.Collective == AllReduce {
			laps = 2
		}
		if q.Collective != AllGather {
			reducing = n - 1
		}
		r = newRing(&q.Machine, q.Cluster, float64(q.Bytes)/float64(n))
		if hops := laps * (n - 1) * len(r.hops); hops > maxHops {
			return Prediction{}, q.tooManyHops(hops)
		}
		p.Time, p.LinkBusy, p.NetworkBusy = r.around(reducing, laps*(n-1))
		p.Formula = r.formula(reducing, laps*(n-1))
		moved = float64(laps * (n - 1))
	}
	for _, hop := range r.hops {
		if hop.crosses {
			p.NetworkBytes = moved * hop.sent
			p.NetworkMessages = moved
		} else {
			p.LinkBytes = max(p.LinkBytes, moved*hop.sent)
		}
		p.ReduceBusy = max(p.ReduceBusy, float64(reducing)*hop.reduces)
	}
	if h > 1 {
		p.NetworkSteps = laps * min(h, n-1)
		if q.Collective == Broadcast {
			p.NetworkSteps = h - 1
		}
	}
	p.LinkSteps = laps*(n-1) - p.NetworkSteps
	return p, nil
}

func (q Question) tooManyHops(hops int) error {
	return fmt.Errorf("%s by %s over %d hosts: %d hops to simulate, expected at most %d: ask for fewer pieces, hosts or ranks: %w",
		q.Collective, q.Algorithm, q.Cluster.hosts, hops, maxHops, ErrTooLarge)
}

// chainPieces is the number of pieces with the least time by formula.
func (q Question) chainPieces(hops int) int {
	best, least := 1, math.Inf(1)
	for pieces := 1; pieces <= q.mostPieces() && pieces*hops <= fewHops; pieces *= 2 {
		r := newRing(&q.Machine, q.Cluster, float64(q.Bytes)/float64(pieces))
		if t := r.chainFormula(hops, pieces); t < least {
			best, least = pieces, t
		}
	}
	return best
}

// Best predicts all algorithms of a collective and returns them with the fastest first.
// Equally fast ones stay in the order of the list; those that are too large to be
// simulated are left out.
func Best(q Question) ([]Prediction, error) {
	var all []Prediction
	for _, a := range Algorithms(q.Collective, q.Cluster) {
		q.Algorithm = a
		p, err := Predict(q)
		if errors.Is(err, ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		at := len(all)
		for at > 0 && p.Time < all[at-1].Time {
			at--
		}
		all = append(all[:at], append([]Prediction{p}, all[at:]...)...)
	}
	return all, nil
}
