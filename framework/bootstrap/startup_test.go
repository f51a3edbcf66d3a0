package bootstrap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// arrivalConn connects to rank 0 as a rank would and stops after the handshake.
func arrivalConn(t *testing.T, c Config, at string) *net.TCPConn {
	t.Helper()
	id, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := (handshake.Party{Identity: id, Rank: c.Rank, Size: c.Size}).Dial(conn, handshake.CheckIn, 0); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func TestPortInUse(t *testing.T) {
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Join(bounded(t, patience), Config{Size: 2, ID: id}) // without the listener
	if err := wantError(err, framework.ErrUnavailable, framework.NoPeer, l.Addr().String(), "in use by another process"); err != nil {
		t.Error(err)
	}
	if _, _, err := Listen(context.Background(), l.Addr().String()); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("listen twice: %v", err)
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	t.Parallel()
	log, counted := logOf(3, countsIn)
	_, errs := tryJoinUntil(until(t, counted), t, 5, func(c *Config) {
		switch c.Rank {
		case 0:
			c.Log = log
		case 2:
			c.Addr, c.ID = "not an address", UniqueID{} // never comes
		}
	})
	if !errors.Is(errs[2], framework.ErrInvalid) {
		t.Errorf("rank 2: %v, expected ErrInvalid", errs[2])
	}
	for _, r := range []int{0, 1, 3, 4} {
		if err := errs[r]; !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "rank 2 is missing") {
			t.Errorf("rank %d: %v, expected to name rank 2", r, err)
		}
	}
}

func TestWrongSecret(t *testing.T) {
	t.Parallel()
	log, came := logOf(2, countsIn, notesRefusal)
	_, errs := tryJoinUntil(until(t, came), t, 3, func(c *Config) {
		c.Addr, c.ID, c.Secret = c.ID.Addresses()[0].String(), UniqueID{}, []byte("correct horse battery")
		switch c.Rank {
		case 0:
			c.Log = log
		case 2:
			c.Secret = []byte("staple the horse now")
		}
	})
	if err := wantError(errs[2], framework.ErrInvalid, 0, "wrong secret"); err != nil {
		t.Error(err)
	}
	if err := wantError(errs[0], framework.ErrPeer, 2, "rank 2 is missing", "a connection from 127.0.0.1 that claimed to be rank 2 was turned down", "wrong secret"); err != nil {
		t.Error(err)
	}
}

// A process that does not know the secret cannot end a job, nor keep a rank out. If no other rank
// comes, the error names all that were turned down.
func TestWrongSecretsDoNotEndAJob(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{true, false} {
		l, id, err := Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		secret := []byte("correct horse battery")
		log, noted := logOf(3, notesRefusal)
		ctx := bounded(t, patience)
		if !comes {
			ctx = until(t, noted)
		}
		var root *TCP
		joined := make(chan error, 1)
		go func() {
			var err error
			root, err = Join(ctx, Config{Rank: 0, Size: 2, Addr: id.Addresses()[0].String(), Listener: l, Secret: secret, Log: log})
			joined <- err
		}()
		other := Config{Rank: 1, Size: 2, Addr: id.Addresses()[0].String(), Secret: []byte("staple the horse now")}
		for range 3 {
			_, err := Join(context.Background(), other)
			if err := wantError(err, framework.ErrInvalid, 0, "wrong secret"); err != nil {
				t.Error(err)
			}
		}
		if comes {
			other.Secret = secret
			b, err := Join(context.Background(), other)
			if at := <-joined; err != nil || at != nil {
				t.Fatalf("rank 1: %v, rank 0: %v", err, at)
			}
			closeAll([]*TCP{root, b})
		} else if err := wantError(<-joined, framework.ErrPeer, 1, "rank 1 is missing", "3 connections that claimed to be rank 1 were turned down, the last one from 127.0.0.1: ", "wrong secret"); err != nil {
			t.Error(err)
		}
	}
}

// A job goes on when a stranger knocks.
func TestStrangersDoNotDisturb(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, knock := range []string{"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + strings.Repeat("x", 200), "MSBS", ""} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(knock))
	}
	joined := make(chan error, 2)
	for r := range 2 {
		c := Config{Rank: r, Size: 2, ID: id}
		if r == 0 {
			c.Listener = l
		}
		go func() {
			b, err := Join(bounded(t, patience), c)
			if err == nil {
				err = Barrier(bounded(t, patience), b, 1)
				_ = b.Close()
			}
			joined <- err
		}()
	}
	for range 2 {
		if err := <-joined; err != nil {
			t.Error(err)
		}
	}
}

// Nor do many that connect, send nothing and stay: the oldest make room for others.
func TestSilentStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const slots, knocks = 8, 20
	for range knocks {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	watch := promise.Begin()
	joined := make(chan error, 2)
	for r := range 2 {
		c := Config{Rank: r, Size: 2, ID: id, handshakes: slots}
		if r == 0 {
			c.Listener = l
		}
		go func() {
			b, err := Join(bounded(t, patience), c)
			if err == nil {
				defer b.Close()
			}
			joined <- err
		}()
	}
	for range 2 {
		if err := <-joined; err != nil {
			t.Error(err)
		}
	}
	if err := watch.Kept(5 * time.Second); err != nil {
		t.Errorf("the ranks met %v: expected that %d strangers hold %d places for %v each at most", err, knocks, slots, proofBound)
	}
}

// A connection that was dropped to make room is not accepted afterwards: a rank would take
// its end for the death of the other one.
func TestDroppedStrangerIsNotWelcome(t *testing.T) {
	l, err := listen(t.Context(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	var s strangers
	s.enter(conn)
	if left := s.drop(); left <= 0 || left > proofBound || !s.leave(conn) {
		t.Errorf("a stranger that has just come was dropped, or is to be in %v", left)
	}
	s.list = []stranger{{conn, time.Now().Add(-proofBound)}}
	s.drop()
	if s.leave(conn) {
		t.Error("a stranger that was dropped may stay")
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v: expected that the connection was closed", err)
	}
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		_, _, _ = (handshake.Party{Size: 2}).Accept(b, true, func() bool { return false })
		_ = b.Close()
	}()
	_ = a.SetDeadline(time.Now().Add(patience))
	if err := (handshake.Party{Rank: 1, Size: 2}).Dial(a, handshake.CheckIn, 0); !retry(err) {
		t.Errorf("%v: expected an end of the conversation that is worth another attempt", err)
	}
}

func TestDuplicateRank(t *testing.T) {
	_, errs := tryJoin(t, 3, func(c *Config) {
		c.Size = 4 // rank 3 never comes, so the job cannot be complete before
		if c.Rank == 2 {
			c.Rank = 1
		}
	})
	for r, err := range errs {
		if err := wantError(err, framework.ErrInvalid, 1, "twice"); err != nil {
			t.Errorf("process %d: %v", r, err)
		}
	}
}

func TestUnknownVersions(t *testing.T) {
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // a rank 0 of the future
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, handshake.HelloSize))
		_, _ = conn.Write(handshake.Answer{Version: 77, Refusal: handshake.RefusedVersion}.Encode())
		_, _ = io.Copy(io.Discard, conn)
	}()
	_, err = Join(bounded(t, patience), Config{Rank: 1, Size: 2, ID: id})
	if err := wantError(err, framework.ErrPeer, 0, "version 77", fmt.Sprint("version ", handshake.Version)); err != nil {
		t.Error(err)
	}

	// And a rank of the future that calls this one.
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	got := make(chan handshake.Answer, 1)
	go func() {
		_, _ = a.Write(append([]byte(handshake.Magic), 99, 0))
		reply := make([]byte, handshake.AnswerSize)
		_, _ = io.ReadFull(a, reply)
		x, _ := handshake.DecodeAnswer(reply)
		got <- x
	}()
	_, proved, err := (handshake.Party{Size: 2}).Accept(b, true, nil)
	if err := wantError(err, framework.ErrPeer, framework.NoPeer, "version 99", fmt.Sprint("version ", handshake.Version)); err != nil || proved {
		t.Error(err, proved)
	}
	if x := <-got; x.Refusal != handshake.RefusedVersion || x.Version != handshake.Version {
		t.Errorf("answer %+v", x)
	}
}

// A rank that dies while the others are still waited for is named at once.
func TestDeathWhileRanksCheckIn(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := Join(context.Background(), Config{Size: 3, ID: id, Listener: l})
		failed <- err
	}()
	conn := arrivalConn(t, Config{Rank: 2, Size: 3, ID: id}, l.Addr().String())
	_ = conn.Close()
	select {
	case err := <-failed:
		if err := wantError(err, framework.ErrPeer, 2, "died during start-up"); err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it is still waited for")
	}
}

// A rank that cannot listen says so to rank 0 and ends the connection, long before the collector would.
func TestRankThatCannotListenHangsUp(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	l, err := listen(t.Context(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := Config{Rank: 1, Size: 2, Addr: l.Addr().String(), Secret: []byte("a secret of many bytes"), Interface: "no such interface"}
	id, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	one := startJoin(t, c)
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, _, err := (handshake.Party{Identity: id, Size: 2}).Accept(conn, true, nil); err != nil {
		t.Fatal(err)
	}
	if f, err := wire.Read(conn); err != nil || f.Kind != wire.KindNotice {
		t.Errorf("rank 1 says %+v, %v: expected the reason", f, err)
	}
	if err := (<-one).err; !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("rank 1: %v, expected ErrInvalid", err)
	}
	for err = nil; err == nil; { // until the other end answers that it is closed, or its buffer is full
		_, err = conn.Write(make([]byte, 1<<16))
	}
	if !dropped(err) {
		t.Errorf("%v: expected that rank 1 has closed the connection", err)
	}
}

// A rank that has joined says so to rank 0, also where the frame has to wait for longer than last words: without it rank 0
// would take the end of the connection for the death of the rank.
func TestReadyIsNotLost(t *testing.T) {
	t.Parallel()
	l, err := listen(t.Context(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	zero, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	for _, size := range []int{1 << 16, 1} { // until no buffer has room, unless this process is late
		for n := 1; n > 0; {
			_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, _ = conn.Write(make([]byte, size))
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&checkingIn{conn: conn.(*net.TCPConn)}).end(nil)
	}()
	<-time.After(2 * lastWords)
	_ = zero.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(zero); err != nil || !bytes.HasSuffix(b, wire.Append(nil, wire.KindReady, 0, nil)) {
		t.Errorf("%d bytes, %v: expected the frame at their end", len(b), err)
	}
	<-ended
}

// Nonsense from a rank that knows the secret ends the job and names the rank.
func TestNonsenseDuringCheckIn(t *testing.T) {
	t.Parallel()
	entryOf := func(r uint32, port uint16) []byte {
		return entry{rank: r, port: port}.append(nil)
	}
	for name, c := range map[string]struct {
		bytes  []byte
		wanted string
	}{
		"oversized":     {binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, 1<<31), uint64(wire.KindCheckIn)), "expected at most"},
		"truncated":     {wire.Append(nil, wire.KindCheckIn, 0, entryOf(1, 9)[:20]), "truncated"},
		"too long":      {wire.Append(nil, wire.KindCheckIn, 0, append(entryOf(1, 9), 0)), "1 bytes too many"},
		"other rank":    {wire.Append(nil, wire.KindCheckIn, 0, entryOf(0, 9)), "checked in as rank 0"},
		"rank too high": {wire.Append(nil, wire.KindCheckIn, 0, entryOf(7, 9)), "expected a rank below 2"},
		"type":          {wire.Append(nil, 99, 0, nil), "unknown type 99"},
		"out of turn":   {wire.Append(nil, wire.KindTable, 0, nil), "expected none here"},
	} {
		t.Run(name, func(t *testing.T) {
			l, id, err := Listen(context.Background(), "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() {
				_, err := Join(context.Background(), Config{Size: 2, ID: id, Listener: l})
				failed <- err
			}()
			conn := arrivalConn(t, Config{Rank: 1, Size: 2, ID: id}, l.Addr().String())
			b := c.bytes
			if len(b) < wire.HeaderSize {
				b = append(b, make([]byte, wire.HeaderSize-len(b))...)
			}
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-failed:
				if err := wantError(err, framework.ErrPeer, 1, c.wanted); err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("it goes on")
			}
		})
	}
}

func TestSeveralHostsNeedASecret(t *testing.T) {
	t.Parallel()
	edit := func(insecure bool) func(c *Config) {
		return func(c *Config) {
			c.Addr, c.ID = c.ID.Addresses()[0].String(), UniqueID{}
			c.HostID, c.Insecure = fmt.Sprint("host ", c.Rank), insecure
		}
	}
	_, errs := tryJoin(t, 2, edit(false))
	for _, err := range errs {
		if err := wantError(err, framework.ErrInvalid, 1, EnvSecretFile, "insecure"); err != nil {
			t.Error(err)
		}
	}
	ranks := joinAll(t, 2, edit(true))
	if ranks[0].SameHost(1) {
		t.Error("ranks of different hosts share one")
	}
}

// Without a secret, a process elsewhere is turned away whatever it claims.
func TestFromHere(t *testing.T) {
	addr := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, c := range []struct {
		remote, local string
		here          bool
	}{
		{"127.0.0.1:1", "127.0.0.1:2", true},
		{"[::ffff:127.0.0.1]:1", "127.0.0.1:2", true},
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:2", true},
		{"192.0.2.7:1", "192.0.2.1:2", false},
		{"[2001:db8::7]:1", "[2001:db8::1]:2", false},
	} {
		if got := fromHere(addressed{remote: addr(c.remote), local: addr(c.local)}); got != c.here {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

type addressed struct {
	net.Conn
	remote, local net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }
func (a addressed) LocalAddr() net.Addr  { return a.local }

func TestLateRankIsTurnedAway(t *testing.T) {
	ranks := joinAll(t, 2, nil)
	c := ranks[0].cfg
	c.Rank, c.Listener = 1, nil
	_, err := Join(bounded(t, patience), c)
	if err := wantError(err, framework.ErrInvalid, 1, "after all ranks were there"); err != nil {
		t.Error(err)
	}
	if err := ranks[0].Err(); err != nil {
		t.Errorf("the job ended by it: %v", err)
	}
}

// Nonsense over a link, from a rank that has gone wrong.
func TestNonsenseOverALink(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string][]byte{
		"type":     wire.Append(nil, wire.KindReady, 0, nil),
		"parcel":   wire.Append(nil, wire.KindParcel, 1, []byte{1, 2, 3}),
		"version":  wire.Append(nil, wire.KindParcel, 1, append(make([]byte, 8), 9, 0, 0, 0)),
		"goodbye":  wire.Append(nil, wire.KindGoodbye, 1, []byte{1}),
		"notice":   wire.Append(nil, wire.KindNotice, 1, []byte{1}),
		"no frame": []byte(strings.Repeat("\xff", wire.HeaderSize)),
	} {
		t.Run(name, func(t *testing.T) {
			ranks := joinAll(t, 2, nil)
			l, err := ranks[1].linkTo(bounded(t, patience), 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Push(frame, true, ranks[1].work.Go); err != nil {
				t.Fatal(err)
			}
			awaitFailed(t, ranks[0])
			if err := wantError(ranks[0].Err(), framework.ErrPeer, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// The rank that is turned down may be the only one whose output the user reads.
func TestRefusalsNameTheRemedy(t *testing.T) {
	c := handshake.Party{Size: 6}
	for r, want := range map[handshake.Refusal]string{
		handshake.RefusedSize:    "rank 0 is in a job of 4 ranks, this rank expects 6: expected the same numbers of hosts and ranks everywhere",
		handshake.RefusedVersion: "use one release of mscclpp-go in all ranks",
		handshake.RefusedSecret:  "expected the same MSCCLPP_SECRET_FILE for all ranks",
	} {
		if err := c.Refused(r, 0, 4); !strings.Contains(err.Error(), want) {
			t.Errorf("refusal %d: %v: expected %q", r, err, want)
		}
	}
}
