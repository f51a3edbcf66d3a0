package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	if err := awaitServer(ctx, perftestPort, served); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	out, err := compare.Output(ctx, append(slices.Clone(args), j.host))
	if err != nil {
		return nil, err
	}
	return out, <-served
}

// perftestPort is where its servers listen for their client, which gives up at once where none does.
const perftestPort = 18515

// awaitServer waits until a server listens, or has ended. Time is no bound for it: in a machine that counts instructions
// the clock runs on while the program is read from the host's disk. The bound is that of the machine.
func awaitServer(ctx context.Context, port int, served <-chan error) error {
	for {
		there, err := listens(port)
		if there || err != nil {
			return err
		}
		select {
		case err := <-served:
			return fmt.Errorf("it has ended, and not listened on port %d: %w", port, err)
		case <-ctx.Done():
			return fmt.Errorf("it does not listen on port %d: %w", port, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listens reports whether some process of this host listens on a TCP port.
func listens(port int) (bool, error) {
	at := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(text)) {
			// slot local-address remote-address state …; 0A is LISTEN
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], at) && f[3] == "0A" {
				return true, nil
			}
		}
	}
	return false, nil
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
