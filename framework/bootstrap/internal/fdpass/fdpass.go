// Package fdpass passes file descriptors between ranks of one host.
package fdpass

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/internal/lograte"
)

// Descriptors travel over one datagram socket per rank, in the abstract name
// space: nothing is left of it when its process ends, however that ends. They are
// numbered; a parcel cites the number of its first one. A datagram is
// little-endian:
//
//	"MSFD" | u8 version | u8 kind | u16 count | u32 from | u32 to | u64 first | text, 32 | HMAC-SHA256, 32
//
// The kernel vouches for the sender's uid, the HMAC for its being of this job.
const (
	datagramMagic   = "MSFD"
	datagramVersion = 1
	datagramSize    = 24 + 32 + sha256.Size
	PerMessage      = 64
	fdPatience      = 20 * time.Second // for descriptors whose parcel has arrived
)

type datagramKind uint8

const (
	datagramFDs   datagramKind = 1
	datagramProbe datagramKind = 2 // can descriptors travel?
	datagramReply datagramKind = 3 // they can
)

type datagram struct {
	kind     datagramKind
	count    int
	from, to uint32
	first    uint64
	text     [32]byte
}

func (d datagram) encode(key []byte) []byte {
	b := append(make([]byte, 0, datagramSize), datagramMagic...)
	b = append(b, datagramVersion, byte(d.kind))
	b = binary.LittleEndian.AppendUint16(b, uint16(d.count))
	b = binary.LittleEndian.AppendUint32(b, d.from)
	b = binary.LittleEndian.AppendUint32(b, d.to)
	b = binary.LittleEndian.AppendUint64(b, d.first)
	b = append(b, d.text[:]...)
	return append(b, datagramMAC(key, b)...)
}

func datagramMAC(key, b []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("descriptors"))
	m.Write(b)
	return m.Sum(nil)
}

func decodeDatagram(b, key []byte) (datagram, error) {
	if len(b) != datagramSize {
		return datagram{}, fmt.Errorf("%w: datagram of %d bytes: expected %d", framework.ErrPeer, len(b), datagramSize)
	}
	if string(b[:4]) != datagramMagic || b[4] != datagramVersion {
		return datagram{}, fmt.Errorf("%w: datagram begins with %q version %d: expected %q version %d", framework.ErrPeer, b[:4], b[4], datagramMagic, datagramVersion)
	}
	signed := datagramSize - sha256.Size
	if !hmac.Equal(b[signed:], datagramMAC(key, b[:signed])) {
		return datagram{}, fmt.Errorf("%w: datagram with a wrong secret", framework.ErrPeer)
	}
	d := datagram{
		kind: datagramKind(b[5]), count: int(binary.LittleEndian.Uint16(b[6:])),
		from: binary.LittleEndian.Uint32(b[8:]), to: binary.LittleEndian.Uint32(b[12:]),
		first: binary.LittleEndian.Uint64(b[16:]),
	}
	copy(d.text[:], b[24:])
	if d.kind < datagramFDs || d.kind > datagramReply || d.count < 1 || d.count > PerMessage {
		return datagram{}, fmt.Errorf("%w: datagram of kind %d with %d descriptors: expected kind 1 to 3 and 1 to %d descriptors", framework.ErrPeer, d.kind, d.count, PerMessage)
	}
	return d, nil
}

// Socket is a rank's socket, and what has arrived there.
type Socket struct {
	conn  *net.UnixConn
	key   []byte
	rank  int
	Name  [16]byte // of the socket
	log   *slog.Logger
	noise lograte.Limiter // of strangers
	done  chan struct{}   // the reader has ended

	replies chan datagram // to a probe

	mu      sync.Mutex
	next    uint64
	arrived map[fdKey]arrival
	news    chan struct{} // closed and replaced when something arrives
	closed  bool
}

type fdKey struct {
	from   int
	number uint64
}

// arrival is one descriptor, or why it did not come. Unwanted ones belong to a
// Recv that gave up.
type arrival struct {
	file     *os.File
	err      error
	unwanted bool
}

// Open makes the socket of a rank.
func Open(key []byte, rank int, log *slog.Logger) (*Socket, error) {
	d := &Socket{
		key: key, rank: rank, log: log, next: 1, done: make(chan struct{}), replies: make(chan datagram, 1),
		arrived: map[fdKey]arrival{}, news: make(chan struct{}),
	}
	_, _ = rand.Read(d.Name[:])
	conn, err := net.ListenUnixgram("unixgram", Address(d.Name))
	if err != nil {
		return nil, fmt.Errorf("%w: socket for descriptors: %w", framework.ErrUnavailable, err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var serr error
		err = raw.Control(func(fd uintptr) {
			serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		})
		err = errors.Join(err, serr)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: socket for descriptors: %w", framework.ErrUnavailable, err)
	}
	d.conn = conn
	go d.read()
	return d, nil
}

// Address is that of the socket with a name.
func Address(name [16]byte) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixgram", Name: "@mscclpp/" + hex.EncodeToString(name[:])}
}

// read takes what arrives until the socket is closed.
func (d *Socket) read() {
	defer close(d.done)
	b := make([]byte, datagramSize+1)
	oob := make([]byte, unix.CmsgSpace(4*PerMessage)+unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, oobn, flags, _, err := d.conn.ReadMsgUnix(b, oob)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				d.log.Error("bootstrap: descriptors cannot be received any more", "error", err)
			}
			return
		}
		files, uid, err := parseControl(oob[:oobn])
		if err == nil && uid != os.Geteuid() {
			err = fmt.Errorf("%w: datagram of user %d: expected %d", framework.ErrPeer, uid, os.Geteuid())
		}
		var m datagram
		if err == nil {
			m, err = decodeDatagram(b[:n], d.key)
		}
		if err == nil && m.to != uint32(d.rank) {
			err = fmt.Errorf("%w: datagram for rank %d: expected rank %d", framework.ErrPeer, m.to, d.rank)
		}
		if err != nil {
			// Not of this job, or damaged: there is nobody to tell.
			d.noise.Log(d.log, slog.LevelWarn, "bootstrap: a datagram was dropped", "error", err)
			closeFiles(files)
			continue
		}
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) != m.count {
			err = fmt.Errorf("%w: %d of %d descriptors arrived: this process may have too many open files (ulimit -n)", framework.ErrUnavailable, len(files), m.count)
			closeFiles(files)
			files = nil
		}
		d.deliver(m, files, err)
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// parseControl takes the descriptors and the sender's uid from control data. The descriptors are
// returned even with an error: the caller has to close them.
func parseControl(oob []byte) (files []*os.File, uid int, err error) {
	uid = -1
	for len(oob) > 0 {
		// One by one, so that what comes before a damaged part is not lost.
		h, data, rest, perr := unix.ParseOneSocketControlMessage(oob)
		if perr != nil {
			return files, uid, fmt.Errorf("%w: control data: %w", framework.ErrPeer, perr)
		}
		oob = rest
		m := unix.SocketControlMessage{Header: h, Data: data}
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_RIGHTS:
			numbers, perr := unix.ParseUnixRights(&m)
			if perr != nil {
				return files, uid, fmt.Errorf("%w: control data: %w", framework.ErrPeer, perr)
			}
			for _, n := range numbers {
				files = append(files, os.NewFile(uintptr(n), "descriptor of a peer"))
			}
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_CREDENTIALS:
			cred, perr := unix.ParseUnixCredentials(&m)
			if perr != nil {
				return files, uid, fmt.Errorf("%w: control data: %w", framework.ErrPeer, perr)
			}
			uid = int(cred.Uid)
		}
	}
	return files, uid, nil
}

// deliver stores descriptors, or the reason why they are missing.
func (d *Socket) deliver(m datagram, files []*os.File, err error) {
	switch m.kind {
	case datagramProbe:
		d.reply(m, files)
		return
	case datagramReply:
		ok := err == nil && holds(files, m.text)
		closeFiles(files)
		if ok {
			select {
			case d.replies <- m:
			default:
			}
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range m.count {
		k := fdKey{int(m.from), m.first + uint64(i)}
		a := arrival{err: err}
		if err == nil {
			a.file = files[i]
		}
		old, known := d.arrived[k]
		if d.closed || known { // unwanted, or sent twice
			if a.file != nil {
				_ = a.file.Close()
			}
			if old.unwanted {
				delete(d.arrived, k)
			}
			continue
		}
		d.arrived[k] = a
	}
	close(d.news)
	d.news = make(chan struct{})
}

// Take returns descriptors that a parcel cites. They were sent before it, so the
// wait is short.
func (d *Socket) Take(ctx context.Context, job *failure.State, from int, first uint64, count int) ([]*os.File, error) {
	timer := time.NewTimer(fdPatience)
	defer timer.Stop()
	for {
		d.mu.Lock()
		here := 0
		for i := range count {
			if a, ok := d.arrived[fdKey{from, first + uint64(i)}]; ok && !a.unwanted {
				here++
			}
		}
		if here == count {
			files, err := d.collect(from, first, count)
			d.mu.Unlock()
			return files, err
		}
		news := d.news
		d.mu.Unlock()
		var err error
		select {
		case <-news:
			continue
		case <-timer.C:
			err = fmt.Errorf("%w: %d of %d descriptors arrived within %v", framework.ErrPeer, here, count, fdPatience)
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-job.Done():
			err = job.Cause()
		}
		d.giveUp(from, first, count)
		return nil, err
	}
}

func (d *Socket) collect(from int, first uint64, count int) ([]*os.File, error) {
	files := make([]*os.File, 0, count)
	var err error
	for i := range count {
		k := fdKey{from, first + uint64(i)}
		a := d.arrived[k]
		delete(d.arrived, k)
		if a.file != nil {
			files = append(files, a.file)
		}
		err = errors.Join(err, a.err)
	}
	if err != nil {
		closeFiles(files)
		return nil, fmt.Errorf("%w: descriptors: %w", framework.ErrUnavailable, err)
	}
	return files, nil
}

func (d *Socket) giveUp(from int, first uint64, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range count {
		k := fdKey{from, first + uint64(i)}
		if a, ok := d.arrived[k]; ok {
			if a.file != nil {
				_ = a.file.Close()
			}
			delete(d.arrived, k)
		} else {
			d.arrived[k] = arrival{unwanted: true}
		}
	}
}

// Close closes the socket and what was not taken.
func (d *Socket) Close() {
	_ = d.conn.Close()
	<-d.done
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for k, a := range d.arrived {
		if a.file != nil {
			_ = a.file.Close()
		}
		delete(d.arrived, k)
	}
}
