package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

// The programs of perftest run as a pair: a server, and a client that connects to it.

func (j *job) atomicLatency(ctx context.Context, points []point) ([]sample, error) {
	p := points[0]
	out, err := j.perftest(ctx, "ib_atomic_lat", "-A", "FETCH_AND_ADD", "-n", strconv.Itoa(p.iterations))
	if err != nil {
		return nil, err
	}
	v, err := column(out, 9, 4) // bytes, iterations, min, max, typical, …: typical is the median
	return []sample{{p.what, p.bytes, p.iterations, v}}, err
}

func (j *job) writeBandwidth(ctx context.Context, points []point) ([]sample, error) {
	p := points[0]
	out, err := j.perftest(ctx, "ib_write_bw", "-s", strconv.FormatUint(p.bytes, 10), "-n", strconv.Itoa(p.iterations))
	if err != nil {
		return nil, err
	}
	v, err := column(out, 5, 3) // bytes, iterations, peak, average, messages a second
	return []sample{{p.what, p.bytes, p.iterations, v}}, err
}

func (j *job) perftest(ctx context.Context, args ...string) ([]byte, error) {
	gid, err := gidIndex(filepath.Join("/sys/class/infiniband", j.device, "ports/1"))
	if err != nil {
		return nil, err
	}
	args = append(args, "-d", j.device, "-x", strconv.Itoa(gid), "-F")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		_, err := compare.Output(ctx, args)
		served <- err
	}()
	// The client gives up at once while its server does not listen yet.
	for start := time.Now(); ; {
		out, err := compare.Output(ctx, append(slices.Clone(args), j.host))
		if err == nil {
			return out, <-served
		}
		select {
		case err := <-served:
			return nil, fmt.Errorf("server: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
		if time.Since(start) > 30*time.Second {
			return nil, err
		}
	}
}

// column is a number of the only line of out that has so many of them and nothing else.
func column(out []byte, width, n int) (float64, error) {
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		numbers := make([]float64, 0, width)
		for _, w := range words {
			if v, err := strconv.ParseFloat(w, 64); err == nil {
				numbers = append(numbers, v)
			}
		}
		if len(words) == width && len(numbers) == width {
			return numbers[n], nil
		}
	}
	return 0, fmt.Errorf("no line of %d numbers in %q", width, out)
}

// gidIndex finds the port's address of RoCE v2 that is an IPv4 one, else any of RoCE v2.
func gidIndex(port string) (int, error) {
	best := -1
	for i := range 256 {
		kind, err := os.ReadFile(filepath.Join(port, "gid_attrs/types", strconv.Itoa(i)))
		if err != nil || strings.TrimSpace(string(kind)) != "RoCE v2" {
			continue
		}
		gid, err := os.ReadFile(filepath.Join(port, "gids", strconv.Itoa(i)))
		if err == nil && strings.HasPrefix(string(gid), "0000:0000:0000:0000:0000:ffff:") {
			return i, nil
		}
		if err == nil && best < 0 {
			best = i
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("%s has no address of RoCE v2", port)
	}
	return best, nil
}
