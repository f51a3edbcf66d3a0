// Package handshake makes both ends of a connection prove that they are of one job.
package handshake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// Every connection begins with four messages of fixed size, little-endian:
//
//	C→S  "MSBS" | u16 version | u8 Purpose | u8 0 | u32 from | u32 to | u32 size | u32 0 | job, 16 | nonce, 32
//	S→C  "MSBS" | u16 version | u8 Refusal | u8 0 | u32 rank | u32 0 | nonce, 32
//	C→S  HMAC-SHA256(key, "client" | first message | second message)
//	S→C  u8 Refusal | 3 bytes 0 | u32 size | HMAC-SHA256(key, "server" | first | second)
//
// Magic and version stay at the front in every version, so that ends of different versions can say
// so. The server proves itself last: it shows no function of the key to a client that has not
// proved to know it.
const (
	Magic   = "MSBS"
	Version = 2

	HelloSize  = 72
	AnswerSize = 48
	ProofSize  = sha256.Size
	FinalSize  = 8 + ProofSize
)

// Purpose says what a connection is for.
type Purpose uint8

// Purposes of connections.
const (
	CheckIn Purpose = 1 // rank 0 collects all ranks
	Link    Purpose = 2 // frames between two ranks
)

// Refusal says why a connection is turned down.
type Refusal uint8

// Refusals, and their absence.
const (
	accepted       Refusal = 0
	RefusedVersion Refusal = 1
	RefusedJob     Refusal = 2
	RefusedSecret  Refusal = 3
	RefusedRank    Refusal = 4 // not the rank that was called
	RefusedSize    Refusal = 5 // another number of ranks
	RefusedClosed  Refusal = 6 // the rank is leaving
	RefusedPurpose Refusal = 7
	RefusedHost    Refusal = 8 // a job of one host, called from another one
	RefusedSecond  Refusal = 9 // there is a process with this rank
)

// Hello is the first message.
type Hello struct {
	Version  uint16
	Purpose  Purpose
	From, To uint32
	Size     uint32
	Job      [16]byte
	Nonce    [32]byte
}

// Encode returns the message.
func (h Hello) Encode() []byte {
	b := append(make([]byte, 0, HelloSize), Magic...)
	b = binary.LittleEndian.AppendUint16(b, h.Version)
	b = append(b, byte(h.Purpose), 0)
	b = binary.LittleEndian.AppendUint32(b, h.From)
	b = binary.LittleEndian.AppendUint32(b, h.To)
	b = binary.LittleEndian.AppendUint32(b, h.Size)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, h.Job[:]...)
	return append(b, h.Nonce[:]...)
}

// decodeHello reads the first message.
func decodeHello(b []byte) (Hello, error) {
	r := wire.Reader{B: b}
	magic := r.Bytes(4, "hello")
	h := Hello{Version: r.U16("hello"), Purpose: Purpose(r.U8("hello"))}
	r.U8("hello")
	h.From, h.To, h.Size = r.U32("hello"), r.U32("hello"), r.U32("hello")
	r.U32("hello")
	copy(h.Job[:], r.Bytes(16, "hello"))
	copy(h.Nonce[:], r.Bytes(32, "hello"))
	if err := r.End("hello"); err != nil {
		return Hello{}, err
	}
	if string(magic) != Magic {
		return Hello{}, fmt.Errorf("%w: connection does not speak this protocol: it begins with %q, expected %q", framework.ErrPeer, magic, Magic)
	}
	return h, nil
}

// Answer is the second message.
type Answer struct {
	Version uint16
	Refusal Refusal
	Rank    uint32
	Nonce   [32]byte
}

// Encode returns the message.
func (a Answer) Encode() []byte {
	b := append(make([]byte, 0, AnswerSize), Magic...)
	b = binary.LittleEndian.AppendUint16(b, a.Version)
	b = append(b, byte(a.Refusal), 0)
	b = binary.LittleEndian.AppendUint32(b, a.Rank)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(b, a.Nonce[:]...)
}

// DecodeAnswer reads the second message.
func DecodeAnswer(b []byte) (Answer, error) {
	r := wire.Reader{B: b}
	magic := r.Bytes(4, "answer")
	a := Answer{Version: r.U16("answer"), Refusal: Refusal(r.U8("answer"))}
	r.U8("answer")
	a.Rank = r.U32("answer")
	r.U32("answer")
	copy(a.Nonce[:], r.Bytes(32, "answer"))
	if err := r.End("answer"); err != nil {
		return Answer{}, err
	}
	if string(magic) != Magic {
		return Answer{}, fmt.Errorf("%w: the other end is not a Rank: it answers %q, expected %q", framework.ErrPeer, magic, Magic)
	}
	return a, nil
}

// Identity is what Config says about the job: how a connection proves itself.
type Identity struct {
	Job       [16]byte
	Key       []byte
	HasSecret bool
	OneHost   bool   // only processes of this host and user can know the key
	KeyFile   string // where it is from then
}

func (id Identity) prove(side string, h, a []byte) []byte {
	m := hmac.New(sha256.New, id.Key)
	m.Write([]byte(side))
	m.Write(h)
	m.Write(a)
	return m.Sum(nil)
}

// Party is what both ends of a new connection have to agree on.
type Party struct {
	Identity
	Rank, Size int // of this end
	Closing    func() bool
	Ended      func() bool              // nil: it has not; the job of rank 0, by a failure or by Close
	Instance   func() ([16]byte, error) // the number that links of this job know; nil: the one that all know. It may wait for rank 0
}

// jobOf names the job for a Purpose. Jobs one after another may have one name, at one
// address; a link that was meant for a rank of the one is of no use in the other.
func (c Party) jobOf(why Purpose) ([16]byte, error) {
	if why != Link || c.Instance == nil {
		return c.Job, nil
	}
	instance, err := c.Instance()
	sum := sha256.Sum256(append(append([]byte("mscclpp link\x00"), c.Job[:]...), instance[:]...))
	return [16]byte(sum[:]), err
}

// Dial performs the handshake as the side that connected. The caller has set a deadline on the
// connection.
func (c Party) Dial(conn io.ReadWriter, why Purpose, to int) error {
	job, err := c.jobOf(why)
	if err != nil {
		return err
	}
	h := Hello{Version: Version, Purpose: why, From: uint32(c.Rank), To: uint32(to), Size: uint32(c.Size), Job: job}
	_, _ = rand.Read(h.Nonce[:]) // never fails
	first := h.Encode()
	if _, err := conn.Write(first); err != nil {
		return Unanswered(err)
	}
	second := make([]byte, AnswerSize)
	if _, err := io.ReadFull(conn, second); err != nil {
		return Unanswered(err)
	}
	a, err := DecodeAnswer(second)
	if err != nil {
		return err
	}
	if a.Version != Version {
		return fmt.Errorf("%w: rank %d speaks version %d of the bootstrap protocol, this rank speaks version %d: use one release of mscclpp-go in all ranks", framework.ErrPeer, to, a.Version, Version)
	}
	if a.Refusal != accepted {
		return c.Refused(a.Refusal, to, 0)
	}
	if _, err := conn.Write(c.prove("client", first, second)); err != nil {
		return Unanswered(err)
	}
	final := make([]byte, FinalSize)
	if _, err := io.ReadFull(conn, final); err != nil {
		return Unanswered(err)
	}
	if r := Refusal(final[0]); r != accepted {
		return c.Refused(r, to, int(binary.LittleEndian.Uint32(final[4:])))
	}
	if !hmac.Equal(final[8:], c.prove("server", first, second)) || a.Rank != uint32(to) {
		return fmt.Errorf("%w: wrong secret: the rank that answered does not know this job's secret", framework.ErrInvalid)
	}
	return nil
}

// Jobs that use the address of rank 0 and will end.
var (
	ErrOtherJob = errors.New("another job listens there")
	ErrEnding   = errors.New("a job that ends listens there")
)

// Unanswered is the error of a handshake that ended early.
func Unanswered(err error) error {
	return fmt.Errorf("%w: handshake was not completed: %w", framework.ErrPeer, err)
}

// Refused says why the other end turned a connection down.
func (c Party) Refused(r Refusal, by, size int) error {
	switch r {
	case RefusedVersion:
		return fmt.Errorf("%w: rank %d does not know version %d of the bootstrap protocol: use one release of mscclpp-go in all ranks", framework.ErrPeer, by, Version)
	case RefusedJob:
		return fmt.Errorf("%w: %w: expected job %x", framework.ErrInvalid, ErrOtherJob, c.Job[:8])
	case RefusedSecret:
		if c.OneHost {
			return fmt.Errorf("%w: wrong secret: rank %d was started by another user, in another container, or with %s: expected the secret of this user in %s, or the same %s for all ranks", framework.ErrInvalid, by, envSecretFile, c.KeyFile, envSecretFile)
		}
		return fmt.Errorf("%w: wrong secret: rank %d did not accept this rank's secret: expected the same %s for all ranks", framework.ErrInvalid, by, envSecretFile)
	case RefusedRank:
		return fmt.Errorf("%w: another rank than %d listens there", framework.ErrPeer, by)
	case RefusedSize:
		return fmt.Errorf("%w: rank %d is in a job of %d ranks, this rank expects %d: expected the same numbers of hosts and ranks everywhere", framework.ErrInvalid, by, size, c.Size)
	case RefusedClosed:
		return fmt.Errorf("%w: %w", ErrEnding, failure.Left(by))
	case RefusedHost:
		return fmt.Errorf("%w: %s", framework.ErrInvalid, NoSecret(c.Rank, by))
	case RefusedSecond:
		return fmt.Errorf("%w: rank %d is there already: two processes were started with the same rank", framework.ErrInvalid, c.Rank)
	}
	return fmt.Errorf("%w: rank %d refused the connection (reason %d)", framework.ErrPeer, by, r)
}

// Accept performs the handshake as the side that listened. It returns what the other end claims
// even with an error, for reports; after an error the claim is not proved, unless proved says so.
// Once the other end has authenticated, and before it gets the answer, stays decides whether the
// connection is kept; nil: it is. One from a host that cannot be of the job is turned down at once.
func (c Party) Accept(conn io.ReadWriter, here bool, stays func() bool) (h Hello, proved bool, err error) {
	first := make([]byte, HelloSize)
	if _, err := io.ReadFull(conn, first[:6]); err != nil {
		return h, false, Unanswered(err)
	}
	a := Answer{Version: Version, Rank: uint32(c.Rank)}
	_, _ = rand.Read(a.Nonce[:])
	// Another version may have another length, so this comes before the rest.
	if v := binary.LittleEndian.Uint16(first[4:]); string(first[:4]) == Magic && v != Version {
		a.Refusal = RefusedVersion
		_, _ = conn.Write(a.Encode())
		return h, false, fmt.Errorf("%w: a rank speaks version %d of the bootstrap protocol, this rank speaks version %d: use one release of mscclpp-go in all ranks", framework.ErrPeer, v, Version)
	}
	if _, err := io.ReadFull(conn, first[6:]); err != nil {
		return h, false, Unanswered(err)
	}
	if h, err = decodeHello(first); err != nil {
		return h, false, err
	}
	job, err := c.jobOf(h.Purpose)
	if err != nil {
		return h, false, err
	}
	switch {
	case c.OneHost && !here:
		a.Refusal, err = RefusedHost, fmt.Errorf("%w: %s", framework.ErrInvalid, NoSecret(int(h.From), c.Rank))
	case h.Job != job:
		a.Refusal, err = RefusedJob, fmt.Errorf("%w: a rank of job %x called, this is job %x", framework.ErrInvalid, h.Job[:8], job[:8])
	case h.To != uint32(c.Rank):
		a.Refusal, err = RefusedRank, fmt.Errorf("%w: rank %d was called, this is rank %d", framework.ErrPeer, h.To, c.Rank)
	case h.Purpose != CheckIn && h.Purpose != Link, h.Purpose == CheckIn && c.Rank != 0:
		a.Refusal, err = RefusedPurpose, fmt.Errorf("%w: connection of unknown Purpose %d", framework.ErrPeer, h.Purpose)
	}
	second := a.Encode()
	if _, werr := conn.Write(second); err != nil || werr != nil {
		if err == nil {
			err = Unanswered(werr)
		}
		return h, false, err
	}
	proof := make([]byte, ProofSize)
	if _, err := io.ReadFull(conn, proof); err != nil {
		return h, false, Unanswered(err)
	}
	final := make([]byte, 8, FinalSize)
	binary.LittleEndian.PutUint32(final[4:], uint32(c.Size))
	switch {
	case !hmac.Equal(proof, c.prove("client", first, second)):
		final[0], err = byte(RefusedSecret), fmt.Errorf("%w: wrong secret: the process that claims to be rank %d does not know it", framework.ErrInvalid, h.From)
	case stays != nil && !stays():
		return h, false, Unanswered(net.ErrClosed)
	case h.Size != uint32(c.Size):
		proved = true
		final[0], err = byte(RefusedSize), fmt.Errorf("%w: rank %d expects a job of %d ranks, rank %d expects %d: expected the same numbers of hosts and ranks everywhere", framework.ErrInvalid, h.From, h.Size, c.Rank, c.Size)
	case h.From == h.To && c.Ended != nil && c.Ended():
		final[0], err = byte(RefusedClosed), failure.ErrClosed // it is for the next job at this address
	case h.From == h.To:
		final[0], err = byte(RefusedSecond), fmt.Errorf("%w: a second process is rank %d", framework.ErrInvalid, h.From)
	case h.From >= uint32(c.Size):
		proved = true
		final[0], err = byte(RefusedRank), fmt.Errorf("%w: connection of rank %d: expected another rank below %d", framework.ErrInvalid, h.From, c.Size)
	case c.Closing != nil && c.Closing():
		proved = true
		final[0], err = byte(RefusedClosed), failure.ErrClosed
	}
	if err != nil {
		final = append(final, make([]byte, ProofSize)...)
	} else {
		final = append(final, c.prove("server", first, second)...)
	}
	if _, werr := conn.Write(final); werr != nil && err == nil {
		err = Unanswered(werr)
	}
	return h, proved || err == nil, err
}

// envSecretFile names the file with the secret of a job.
const envSecretFile = "MSCCLPP_SECRET_FILE"

// NoSecret says that ranks of two hosts need a secret.
func NoSecret(rank, other int) string {
	return fmt.Sprintf("rank %d is on another host than rank %d and the job has no secret: set %s on all ranks, or bootstrap.insecure to let anybody join", rank, other, envSecretFile)
}
