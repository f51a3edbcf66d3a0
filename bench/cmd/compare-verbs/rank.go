package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/bench/stats"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Measurements of a rank.
const (
	putSignal = "put+signal" // half a round trip of a put with its signal, in µs
	signals   = "signal"     // half a round trip of a signal alone, in µs
	completed = "completion" // a signal with its completion, in one request, in µs
	flushed   = "flush"      // a signal, and then a flush, in µs
	bandwidth = "bandwidth"  // sustained puts and a flush, in MiB/s
)

// sample is the measurement of one point by one run.
type sample struct {
	What       string  `json:"what"`
	Bytes      uint64  `json:"bytes"`
	Iterations int     `json:"iterations"`
	Value      float64 `json:"us"` // or MiB/s
}

func (s sample) point() point { return point{s.What, s.Bytes, s.Iterations} }

// point is WHAT:BYTES:ITERATIONS on a rank's command line.
type point struct {
	what       string
	bytes      uint64
	iterations int
}

func (p point) String() string { return fmt.Sprintf("%s:%d:%d", p.what, p.bytes, p.iterations) }

func parsePoint(text string) (p point, err error) {
	name, rest, _ := strings.Cut(text, ":")
	p.what = name
	if _, err = fmt.Sscanf(rest, "%d:%d", &p.bytes, &p.iterations); err != nil || p.bytes > room || p.iterations < 1 {
		return p, fmt.Errorf("point %q: expected WHAT:BYTES:ITERATIONS, at most %d bytes", text, room)
	}
	switch p.what {
	case putSignal, signals, completed, flushed, bandwidth:
		return p, nil
	}
	return p, fmt.Errorf("point %q: expected %s, %s, %s, %s or %s", text, putSignal, signals, completed, flushed, bandwidth)
}

const (
	room   = 1 << 20 // bytes of each memory
	warmup = 50
)

// side is one of two ranks.
type side struct {
	job     *mscclpp.Job
	channel *comm.PortChannel
	out, in *comm.Memory
}

// rank is one of our two processes: it measures the points in their order, and rank 0
// prints a line for each.
func rank(ctx context.Context, points []string, w io.Writer) error {
	job, err := mscclpp.Init(ctx)
	if err != nil {
		return err
	}
	defer job.Close()
	if job.Size() != 2 {
		return fmt.Errorf("%d ranks: this takes two", job.Size())
	}
	s := side{job: job}
	for _, m := range []**comm.Memory{&s.out, &s.in} {
		if *m, err = job.World.Alloc(room); err != nil {
			return err
		}
		defer (*m).Close()
	}
	if s.channel, err = job.World.PortChannel(ctx, 1-job.Rank(), s.out, s.in); err != nil {
		return err
	}
	defer s.channel.Close()
	for _, text := range points {
		p, err := parsePoint(text)
		if err != nil {
			return err
		}
		value, err := s.measure(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if job.Rank() == 0 {
			if err := json.NewEncoder(w).Encode(sample{What: p.what, Bytes: p.bytes, Iterations: p.iterations, Value: value}); err != nil {
				return err
			}
		}
	}
	return job.World.Barrier(ctx) // neither leaves while the other still waits
}

func (s *side) measure(ctx context.Context, p point) (float64, error) {
	if err := s.job.World.Barrier(ctx); err != nil {
		return 0, err
	}
	switch p.what {
	case putSignal, signals:
		return s.roundTrips(ctx, p)
	case completed, flushed:
		return s.completions(ctx, p)
	}
	return s.stream(ctx, p)
}

// roundTrips returns the median of half of one.
func (s *side) roundTrips(ctx context.Context, p point) (float64, error) {
	me := byte(1 + s.job.Rank())
	for i := range p.bytes {
		device.Bytes(s.out)[i] = me
	}
	send := func() error {
		if p.what == signals {
			return s.channel.Signal()
		}
		return s.channel.PutWithSignal(0, 0, p.bytes)
	}
	samples := make([]float64, 0, p.iterations)
	for i := -warmup; i < p.iterations; i++ {
		start := time.Now()
		if s.job.Rank() == 0 {
			if err := send(); err != nil {
				return 0, err
			}
		}
		if err := s.channel.Wait(ctx); err != nil {
			return 0, err
		}
		if s.job.Rank() == 1 {
			if err := send(); err != nil {
				return 0, err
			}
		}
		if i >= 0 {
			samples = append(samples, micros(time.Since(start))/2)
		}
	}
	if p.what == putSignal && p.bytes > 0 {
		if got := device.Bytes(s.in)[p.bytes-1]; got != 3-me {
			return 0, fmt.Errorf("the last byte is %d, expected %d", got, 3-me)
		}
	}
	return stats.Median(samples), nil
}

// completions is of rank 0 alone; the other one only takes the signals.
func (s *side) completions(ctx context.Context, p point) (float64, error) {
	samples := make([]float64, 0, p.iterations)
	if s.job.Rank() == 1 {
		return 0, s.take(ctx, p.iterations+warmup)
	}
	// One look at the counter a signal, as perftest has.
	start, first := time.Now(), cycles()
	last := first
	for i := -warmup; i < p.iterations; i++ {
		if p.what == completed {
			if err := s.channel.SignalAndFlush(ctx); err != nil {
				return 0, err
			}
		} else if err := errors.Join(s.channel.Signal(), s.channel.Flush(ctx)); err != nil {
			return 0, err
		}
		now := cycles()
		if i >= 0 {
			samples = append(samples, float64(now-last))
		}
		last = now
	}
	cycle := micros(time.Since(start)) / float64(cycles()-first)
	return stats.Median(samples) * cycle, s.job.World.Barrier(ctx)
}

func (s *side) take(ctx context.Context, n int) error {
	if err := s.job.World.Barrier(ctx); err != nil { // asleep while the other one measures
		return err
	}
	for range n {
		if err := s.channel.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stream is of rank 0 alone as well: puts one behind the other, until all are visible.
func (s *side) stream(ctx context.Context, p point) (float64, error) {
	if s.job.Rank() == 1 {
		return 0, s.job.World.Barrier(ctx)
	}
	var start time.Time
	for i := -warmup; i < p.iterations; i++ {
		if i == 0 {
			if err := s.channel.Flush(ctx); err != nil {
				return 0, err
			}
			start = time.Now()
		}
		if err := s.channel.Put(0, 0, p.bytes); err != nil {
			return 0, err
		}
	}
	if err := s.channel.Flush(ctx); err != nil {
		return 0, err
	}
	seconds := time.Since(start).Seconds()
	return float64(p.bytes) * float64(p.iterations) / seconds / (1 << 20), s.job.World.Barrier(ctx)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
