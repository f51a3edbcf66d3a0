package gfxtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// bufferBytes is the size of each of the two buffers of a rank.
const bufferBytes = 640 << 10

// options have scratch for all algorithms.
func options(ranks int) collectives.Options {
	return collectives.Options{Scratch: uint64(ranks) * 28 << 20, CopyScratch: 1 << 20}
}

// envRanks lists numbers of ranks; CI leaves it at two.
const envRanks = "INTERPRET_RANKS"

// sizes are the numbers of ranks that tests run with.
func sizes(t *testing.T) (list []int) {
	t.Helper()
	for word := range strings.FieldsSeq(cmp.Or(os.Getenv(envRanks), "2")) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 || n > maxRanks {
			t.Fatalf("%s=%q: expected numbers from 2 to %d", envRanks, os.Getenv(envRanks), maxRanks)
		}
		list = append(list, n)
	}
	return list
}

// buffers are memory that all ranks have exchanged.
type buffers struct {
	memory *comm.Memory
	rig    collectivetest.Rig
}

func (r *rank) buffers(ctx context.Context) (*buffers, error) {
	m, err := r.world.Alloc(2 * bufferBytes)
	if err != nil {
		return nil, err
	}
	if _, err := r.world.Exchange(ctx, m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	b := slice(m.Addr(), m.Bytes())
	return &buffers{m, collectivetest.OnHost(r.Comm, b[:bufferBytes], b[bufferBytes:])}, nil
}

// types are those that there are images for: first those with all kernels, then those with few.
var types = []kernel.DataType{
	kernel.Float32, kernel.Float16, kernel.BFloat16, kernel.Float64, kernel.Int32, kernel.Uint8, kernel.Float8E4M3,
	kernel.Int8, kernel.Uint32, kernel.Int64, kernel.Uint64, kernel.Float8E5M2, kernel.Float8E4M3B15,
}

// common is how many of them have all kernels.
const common = 7

// few are the algorithms of the other types.
var few = regexp.MustCompile(`^(oneshot_ll8|direct_ll8|twophase_chunk|chunk|zerocopy|shares)$`)

// counts are small, because lanes take turns; none is a multiple of much.
var counts = []int{1, 63, 257, 1000, 4097}

// trials are the fixed list: each algorithm of each collective, with each type where kernels are built for types.
func trials(r *rank) (list []collectivetest.Trial) {
	for _, kind := range collectivetest.Kinds() {
		for _, name := range r.Algorithms(kind) {
			if strings.HasPrefix(name, "copy") && (name != "copy" || kind != collectives.AllGather) {
				continue // kernels on several streams of a rank, which wait for each other
			}
			for i, typ := range types {
				if i >= common && !few.MatchString(name) {
					continue
				}
				x := collectivetest.Trial{
					Kind: kind, Algorithm: name, Count: counts[len(list)%len(counts)], Type: typ, Op: kernel.Op(len(list) % kernel.Ops),
					Root: len(list) % r.Size(), InPlace: len(list)%3 == 1, Shift: len(list) / 2 % 3,
				}
				reduces := kind == collectives.AllReduce || kind == collectives.ReduceScatter || kind == collectives.Reduce
				if !reduces && i > 0 {
					break
				}
				if (name == "zerocopy" || name == "push") && kind == collectives.AllToAll {
					x.InPlace = false
				}
				if name == "zerocopy" && kind != collectives.AllReduce && x.Op == kernel.PreMulSum {
					x.Op = kernel.Sum // products are not in exchanged memory
				}
				if name == "shares" && reduces && i == 0 {
					x.Count = 140_002 / r.Size() // so many that lanes use their slots again
				}
				if strings.HasPrefix(name, "stream_") {
					x.Shift, x.Count = 0, 4096
				}
				list = append(list, x)
			}
		}
	}
	return list
}

// TestEvery runs every kernel of the committed images for AMD's GPUs once. Results are those of the
// reference, which the kernels for CPUs are compared with too, bit by bit.
func TestEvery(t *testing.T) {
	for _, arch := range []string{"gfx942", "gfx90a"} {
		for _, n := range sizes(t) {
			t.Run(fmt.Sprint(arch, " ", n), func(t *testing.T) { every(t, arch, n) })
		}
	}
}

func every(t *testing.T, arch string, n int) {
	t.Helper()
	var list []string
	c, err := job(t, n, setting{arch: arch, scratch: memory.Uncached, user: memory.Uncached}, options(n), func(ctx context.Context, r *rank) error {
		b, err := r.buffers(ctx)
		if err != nil {
			return err
		}
		defer b.memory.Close()
		for i, x := range trials(r) {
			if r.gpu.rank == 0 {
				list = append(list, x.String())
			}
			if err := x.Run(b.rig, uint64(i)); err != nil {
				return err
			}
		}
		if err := r.Barrier(nil); err != nil {
			return err
		}
		for _, name := range r.Algorithms(collectives.SendRecv) {
			if r.gpu.rank == 0 {
				list = append(list, "messages "+name)
			}
			for _, each := range []int{1, 9} { // few messages have a kernel of their own
				if err := r.exchange(b.rig, name, each); err != nil {
					return err
				}
			}
		}
		return nil
	})
	t.Log(strings.Join(list, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instructions of lanes", c.lanes)
	complete(t, c, arch, n)
}

// ofOthers are kernels that run beside others of their rank, which this device cannot do, and those between hosts, which need a proxy.
var ofOthers = map[string]bool{"mscclpp_steps_sum": true, "mscclpp_steps_move": true, "mscclpp_steps_exchange": true, "mscclpp_steps_sendrecv": true}

// complete checks that every kernel of the images for a processor has run.
func complete(t *testing.T, c *cluster, arch string, ranks int) {
	t.Helper()
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range set.Infos() {
		if info.Arch != arch {
			continue
		}
		for _, symbol := range set.Symbols(info.ID) {
			if ofOthers[symbol] || ranks > 2 && symbol == "mscclpp_broadcast_fetch" { // which is for two
				continue
			}
			if !c.kernels[ran{info.SHA256, symbol}] {
				t.Errorf("%s of %s has not run", symbol, info.ID)
			}
		}
	}
}

// exchange is a group of messages of several lengths between all ranks.
func (r *rank) exchange(rig collectivetest.Rig, algorithm string, each int) error {
	sizes := []int{5, 1024, 9001, 1, 16, 2, 333, 128, 4}
	o := &collectives.CallOptions{Algorithm: algorithm}
	at := func(peer, i int) int {
		return peer*12000 + []int{0, 16, 1056, 10064, 10080, 10112, 10128, 10480, 10624}[i]
	}
	fill := func(from, to, i int) []byte {
		b := make([]byte, sizes[i])
		for k := range b {
			b[k] = byte(from*61 + to*23 + i*101 + k*3 + k>>8)
		}
		return b
	}
	var all []error
	for p := range r.Size() {
		for i := range each {
			all = append(all, rig.In.Write(fill(r.Rank(), p, i), at(p, i)))
		}
	}
	r.GroupStart()
	for p := range r.Size() {
		for i := range each {
			all = append(all, r.Send(rig.In.Pointer(at(p, i)), sizes[i], kernel.Uint8, p, o), r.Recv(rig.Out.Pointer(at(p, i)), sizes[i], kernel.Uint8, p, o))
		}
	}
	all = append(all, r.GroupEnd())
	for p := range r.Size() {
		for i := range each {
			got := make([]byte, sizes[i])
			all = append(all, rig.Out.Read(got, at(p, i)))
			if !bytes.Equal(got, fill(p, r.Rank(), i)) {
				all = append(all, fmt.Errorf("messages %s: message %d from rank %d: other bytes than were sent", algorithm, i, p))
			}
		}
	}
	return errors.Join(all...)
}
