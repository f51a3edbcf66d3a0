package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

func shareTests() []test {
	return []test{
		{"share/other-process", "memory is one for the process that made it and for one that imports it", func(t *T) {
			d := t.device()
			m := d.alloc(1 << 20)
			for i, s := range t.shared(d, m) {
				d.write(m.Addr(), pattern(i, 1<<20))
				t.child(order{Share: s, Bytes: 1 << 20, Expect: i, Write: i + 100})
				t.same(d.read(m.Addr(), 1<<20), pattern(i+100, 1<<20), "what the other process wrote through "+string(s.Kind))
			}
		}},
		{"share/end-of-it", "a range that ends with the memory can be imported, at an offset", func(t *T) {
			d := t.device()
			const n, at = 3 << 20, 2<<20 + 4096
			m := d.alloc(n)
			d.write(m.Addr()+at, pattern(6, n-at))
			for _, s := range t.shared(d, m) {
				t.child(order{Share: s, Offset: at, Bytes: n - at, Expect: 6, Write: 6, MayRefuse: true})
			}
		}},
		{"share/outlived", "a mapping stays valid when the owner frees its memory", func(t *T) {
			d := t.device()
			m, err := d.Alloc(1 << 20)
			t.must(err, "alloc")
			d.write(m.Addr(), pattern(7, 1<<20))
			shares := t.shared(d, m)
			t.must(d.waitingChild(order{Share: shares[0], Bytes: 1 << 20, Expect: 7, Write: 8, Twice: true}, m.Close), "a process that has mapped it")
		}},
		{"share/death", "the death of a process that has mapped memory does nothing to it", func(t *T) {
			d := t.device()
			m := d.alloc(1 << 20)
			s := t.shared(d, m)[0]
			t.child(order{Share: s, Bytes: 1 << 20, Expect: -1, Write: 9, Die: true})
			t.same(d.read(m.Addr(), 1<<20), pattern(9, 1<<20), "memory")
			t.child(order{Share: s, Bytes: 1 << 20, Expect: 9, Write: 10})
		}},
		{"share/beyond", "more than there is cannot be imported", func(t *T) {
			d := t.device()
			m := d.alloc(4 << 20)
			for _, s := range t.shared(d, m) {
				t.child(order{Share: s, Offset: 1 << 40, Bytes: 4096, Refuse: true})
				t.child(order{Share: s, Bytes: 1 << 40, Refuse: true})
			}
		}},
		{"share/garbage", "what is no share is refused: it comes from other processes", func(t *T) {
			d := t.device()
			shares := t.ownShares(d.alloc(4096))
			t.needs(len(shares) > 0, "no shares for other processes")
			for _, s := range shares {
				bad := []framework.Share{{Kind: s.Kind}}
				if s.Kind.HasFD() {
					bad = append(bad, t.strangers(s.Kind)...)
				} else {
					bad = append(bad, framework.Share{Kind: s.Kind, Blob: []byte{1}}, framework.Share{Kind: s.Kind, Blob: bytes.Repeat([]byte{0xff}, len(s.Blob))},
						framework.Share{Kind: s.Kind, Blob: make([]byte, len(s.Blob))}, framework.Share{Kind: s.Kind, Blob: make([]byte, 5000)})
				}
				for _, b := range bad {
					m, err := d.Map(framework.Mapping{Shares: []framework.Share{b}, Bytes: 4096})
					if err == nil {
						_ = m.Close()
						t.errorf("%s share of %d bytes, descriptor %v, is taken", b.Kind, len(b.Blob), b.FD != nil)
					}
				}
			}
		}},
	}
}

// shared are the shares that another process may import.
func (t *T) shared(_ *rig, m interface {
	Export() ([]framework.Share, error)
}) []framework.Share {
	all, err := m.Export()
	t.must(err, "export")
	t.cleanup(framework.Parcel{Shares: all}.Close, "close shares")
	var own []framework.Share
	for _, s := range all {
		if s.Kind != framework.ShareLocal {
			own = append(own, s)
		}
	}
	t.needs(len(own) > 0, "no shares for other processes")
	t.needs(t.o.Child != nil, "no program for another process")
	return own
}

// strangers are descriptors that no back end has made.
func (t *T) strangers(kind framework.ShareKind) []framework.Share {
	r, w, err := os.Pipe()
	t.must(err, "pipe")
	t.cleanup(r.Close, "close a pipe")
	t.cleanup(w.Close, "close a pipe")
	null, err := os.Open("/dev/null")
	t.must(err, "open /dev/null")
	t.cleanup(null.Close, "close /dev/null")
	self, err := os.Open("/proc/self/exe")
	t.must(err, "open the program")
	t.cleanup(self.Close, "close the program")
	return []framework.Share{{Kind: kind, FD: r}, {Kind: kind, FD: null}, {Kind: kind, FD: self}}
}

// order tells another process how to use a share. It goes there as JSON; the descriptor goes as number 3.
type order struct {
	Share         framework.Share `json:"-"`
	Kind          framework.ShareKind
	Blob          []byte
	Offset, Bytes uint64
	Expect        int  // seed of the pattern that it finds; below 0: it does not look
	Write         int  // seed of the pattern that it leaves
	Refuse        bool // the import must fail
	MayRefuse     bool // it may, as unsupported
	Twice         bool // it looks, says so, waits for a word, and then looks again
	Die           bool // it ends without closing anything
	Join          bool // the share is of a multicast object, which it becomes a member of
	Member        int  // with Join, the index of its device
	Index         int
	Options       string
}

// command prepares the other process.
func (t *T) command(o order) (*exec.Cmd, error) {
	o.Kind, o.Blob, o.Index, o.Options = o.Share.Kind, o.Share.Blob, t.o.Index, t.o.Options
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(t.ctx, t.o.Child.Path, t.o.Child.Args...)
	c.Env = append(append(os.Environ(), t.o.Child.Env...), envOrder+"="+string(text))
	if o.Share.FD != nil {
		c.ExtraFiles = []*os.File{o.Share.FD}
	}
	return c, nil
}

// child runs the other process to its end.
func (t *T) child(o order) {
	c, err := t.command(o)
	t.must(err, "another process")
	out, err := c.CombinedOutput()
	if o.Die && bytes.Equal(out, []byte(diesNow)) {
		return
	}
	if err != nil {
		t.errorf("%s share in another process: %v: %s", o.Share.Kind, err, bytes.TrimSpace(out))
	}
}

// waitingChild starts the other process, has do done while it has the memory mapped, and lets it go on.
func (r *rig) waitingChild(o order, do func() error) error {
	c, err := r.t.command(o)
	if err != nil {
		return err
	}
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		return err
	}
	word := make([]byte, len(hasMapped))
	_, err = io.ReadFull(out, word)
	if err == nil {
		err = do()
	}
	_ = in.Close()
	if ended := c.Wait(); err == nil || ended != nil {
		err = errors.Join(err, ended)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

const (
	envOrder  = "MSCCLPP_CONFORM_DEVICE_ORDER"
	hasMapped = "mapped\n"
	diesNow   = "dying\n"
)

// IsChild reports whether this process is one that a suite has started: it calls Child then, and ends.
func IsChild() bool { return os.Getenv(envOrder) != "" }

// Child does what the suite asks of another process.
func Child(b *native.Backend) error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(envOrder)), &o); err != nil {
		return err
	}
	s := framework.Share{Kind: o.Kind, Blob: o.Blob}
	if s.Kind.HasFD() {
		s.FD = os.NewFile(3, "share")
	}
	if o.Join {
		o.Index = o.Member
	}
	opened, err := b.Open(o.Index, o.Options)
	if err != nil {
		return err
	}
	if o.Join {
		return errors.Join(o.join(opened, &s), opened.Close())
	}
	m, err := opened.Map(framework.Mapping{Shares: []framework.Share{s}, Offset: o.Offset, Bytes: o.Bytes})
	switch {
	case o.Refuse && err == nil:
		return fmt.Errorf("%d bytes at %d were mapped: expected a refusal", o.Bytes, o.Offset)
	case o.Refuse, o.MayRefuse && errors.Is(err, framework.ErrUnsupported):
		return opened.Close()
	case err != nil:
		return err
	}
	if err := o.look(opened.(transfer), m.Addr()); err != nil {
		return err
	}
	if o.Die {
		fmt.Print(diesNow)
		os.Exit(3)
	}
	return errors.Join(m.Close(), opened.Close())
}

// transfer has the copies that every device of package native offers.
type transfer interface {
	ReadAt(b []byte, addr uintptr) error
	WriteAt(b []byte, addr uintptr) error
}

func (o *order) look(d transfer, addr uintptr) error {
	got := make([]byte, o.Bytes)
	for range 1 + btoi(o.Twice) {
		if err := d.ReadAt(got, addr); err != nil {
			return err
		}
		if o.Expect >= 0 && !bytes.Equal(got, pattern(o.Expect, len(got))) {
			return errors.New("the memory has not what its owner wrote")
		}
		if o.Twice {
			fmt.Print(hasMapped)
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
	}
	return d.WriteAt(pattern(o.Write, len(got)), addr)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
