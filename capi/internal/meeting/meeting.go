// Package meeting tells the ranks of jobs where their rank 0 is, in the process that has made their unique ids, which need
// not be a rank. Ranks that show the token of an id are answered once rank 0 has said where it listens. nccl/src/meeting.c
// does the same in C, for processes that fork later; package bootstrap asks both.
package meeting

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"time"
)

// The parts of an id that name its meeting place: package bootstrap reads them.
const (
	idBytes  = 128
	atFlags  = 6
	flag     = 2
	atToken  = 110
	tokenLen = 14
	atSum    = 124
)

// Layouts of questions and answers: those of nccl/src/meeting.c.
const (
	questionBytes = 88
	answerBytes   = 64
	atSize        = 28
	atAddresses   = 32 // of a question; of an answer 8
	addressBytes  = 3 * 18
)

// Kinds of questions, and what an answer says.
const (
	listens = 1

	known    = 0
	noSuchID = 1
	taken    = 2
	noSize   = 3
)

const (
	patience    = 10 * time.Second // for a question, and for writing an answer
	mostClients = 4096
)

type token [tokenLen]byte

// Place is a server for any number of ids. It serves as long as its process lives, or until Close.
type Place struct {
	listener net.Listener
	clients  chan struct{} // one for each

	mu   sync.Mutex
	jobs map[token]*job
}

// job has the number of ranks of an id's job, and where its rank 0 listens.
type job struct {
	size, answered uint32        // size 0: no rank has asked yet
	came           chan struct{} // closed when rank 0 has said where it listens
	count          byte
	where          [addressBytes]byte
}

// Serve makes a place at a listener, which others reach at the addresses that ids have.
func Serve(l net.Listener) *Place {
	p := &Place{listener: l, clients: make(chan struct{}, mostClients), jobs: make(map[token]*job)}
	go p.serve()
	return p
}

// Close ends the place.
func (p *Place) Close() error { return p.listener.Close() }

// Enroll has the place serve an id with its addresses. It writes into the id that it does.
func (p *Place) Enroll(id *[idBytes]byte) {
	var t token
	_, _ = rand.Read(t[:]) // never fails
	id[atFlags] = flag
	copy(id[atToken:], t[:])
	binary.LittleEndian.PutUint32(id[atSum:], crc32.ChecksumIEEE(id[:atSum]))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs[t] = &job{came: make(chan struct{})}
}

func (p *Place) serve() {
	for {
		p.clients <- struct{}{}
		conn, err := p.listener.Accept()
		if err != nil {
			<-p.clients
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(100 * time.Millisecond) // there are no descriptors for it, for example
			continue
		}
		go func() {
			defer func() { <-p.clients }()
			defer conn.Close()
			p.converse(conn)
		}()
	}
}

// converse reads the question of a rank, and answers it.
func (p *Place) converse(conn net.Conn) {
	q := make([]byte, questionBytes)
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, q); err != nil {
		return // a stranger, or a rank that has gone
	}
	j, status := p.asked(q)
	if status == known && !j.awaited(conn) {
		return
	}
	a := make([]byte, answerBytes)
	copy(a, "MSMA")
	a[4], a[5] = 1, status
	if status == known {
		a[6] = j.count
		copy(a[8:], j.where[:])
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(a); err == nil && status == known {
		p.answered(j, token(q[8:]))
	}
}

// asked finds the job of a question, and notes what it says of rank 0.
func (p *Place) asked(q []byte) (*job, byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.jobs[token(q[8:])]
	if string(q[:4]) != "MSMQ" || q[4] != 1 || j == nil {
		return nil, noSuchID
	}
	size := binary.BigEndian.Uint32(q[atSize:])
	if size == 0 {
		return nil, noSize
	}
	if j.size == 0 {
		j.size = size // ranks that do not agree on it find out at rank 0
	}
	if q[5] != listens {
		return j, known
	}
	if j.count != 0 || q[6] == 0 || q[6] > addressBytes/18 {
		return nil, taken
	}
	j.count = q[6]
	copy(j.where[:], q[atAddresses:])
	close(j.came)
	return j, known
}

// awaited waits for rank 0, as long as the rank that asks is there: true once it is known.
func (j *job) awaited(conn net.Conn) bool {
	select {
	case <-j.came:
		return true
	default:
	}
	gone := make(chan struct{})
	_ = conn.SetDeadline(time.Time{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1)) // the rank goes, says more than it should, or the deadline is set again
	}()
	select {
	case <-j.came:
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-gone
		return true
	case <-gone:
		return false
	}
}

// answered forgets a job once all its ranks know: an id serves one.
func (p *Place) answered(j *job, t token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.answered++; j.answered >= j.size {
		delete(p.jobs, t)
	}
}
