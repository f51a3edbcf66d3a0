package harness

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Mutation is a parcel that a peer's memory, wire or malice made of a good one.
type Mutation struct {
	What   string
	Parcel framework.Parcel
	May    bool // may pass: a flipped bit can be a legal change
}

// The names of some mutations.
const (
	ForeignShare    = "a descriptor of another file"
	ShrinkableShare = "memory that its owner can shrink"
)

// Mutations are derived from a good parcel, from which they borrow their shares.
func (t *T) Mutations(good framework.Parcel) []Mutation {
	var all []Mutation
	add := func(may bool, data []byte, shares []framework.Share, format string, args ...any) {
		all = append(all, Mutation{fmt.Sprintf(format, args...), framework.Parcel{Data: data, Shares: shares}, may})
	}
	n := len(good.Data)
	for cut := 0; cut < n; cut += max(1, n/64) {
		add(false, good.Data[:cut], good.Shares, "cut to %d of %d bytes", cut, n)
	}
	for bit := 0; bit < 8*n; bit += max(1, n/16) {
		data := bytes.Clone(good.Data)
		data[bit/8] ^= 1 << (bit % 8)
		add(true, data, good.Shares, "bit %d flipped", bit)
	}
	if n > 0 {
		add(false, append(bytes.Clone(good.Data), 0), good.Shares, "one byte too long")
		add(false, append(bytes.Clone(good.Data), good.Data...), good.Shares, "twice as long")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 8, n, 4096, 1 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		add(false, data, good.Shares, "%d foreign bytes", size)
		add(false, make([]byte, size), good.Shares, "%d zero bytes", size)
	}
	if len(good.Shares) > 0 {
		add(false, good.Data, nil, "its shares dropped")
		add(false, good.Data, append(good.Shares[:len(good.Shares):len(good.Shares)], good.Shares[0]), "a share too many")
		other := append([]framework.Share(nil), good.Shares...)
		if other[0].FD != nil {
			other[0].FD = t.ForeignFile()
			add(false, good.Data, other, ForeignShare)
		}
		if info, err := fileOf(good.Shares[0]); err == nil {
			other = append([]framework.Share(nil), good.Shares...)
			other[0].FD = t.Shrinkable(info.Size())
			add(false, good.Data, other, ShrinkableShare)
		}
		other = append([]framework.Share(nil), good.Shares...)
		other[0] = framework.Share{Kind: "carrier-pigeon", Blob: []byte("coo")}
		add(false, good.Data, other, "a share of unknown kind")
	}
	return all
}

// ForeignFile is a descriptor that no key can mean: an empty pipe.
func (t *T) ForeignFile() *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r
}

// Shrinkable is a memfd without seals: its owner can kill any process that maps it.
func (t *T) Shrinkable(bytes int64) *os.File {
	fd, err := unix.MemfdCreate("shrinkable", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatalf("make a memfd: %v", err)
	}
	f := os.NewFile(uintptr(fd), "shrinkable")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(bytes); err != nil {
		t.Fatalf("give a memfd %d bytes: %v", bytes, err)
	}
	return f
}

// fileOf looks at the memfd of a share.
func fileOf(s framework.Share) (os.FileInfo, error) {
	if s.Kind != framework.ShareMemFD || s.FD == nil {
		return nil, framework.ErrUnsupported
	}
	return s.FD.Stat()
}
