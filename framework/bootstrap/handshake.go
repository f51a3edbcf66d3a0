package bootstrap

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
//	C→S  "MSBS" | u16 version | u8 purpose | u8 0 | u32 from | u32 to | u32 size | u32 0 | job, 16 | nonce, 32
//	S→C  "MSBS" | u16 version | u8 refusal | u8 0 | u32 rank | u32 0 | nonce, 32
//	C→S  HMAC-SHA256(key, "client" | first message | second message)
//	S→C  u8 refusal | 3 bytes 0 | u32 size | HMAC-SHA256(key, "server" | first | second)
//
// Magic and version stay at the front in every version, so that ends of different
// versions can say so. The server proves itself last: it shows no function of the
// key to whoever has not proved to know it.
const (
	wireMagic   = "MSBS"
	wireVersion = 2

	helloSize  = 72
	answerSize = 48
	proofSize  = sha256.Size
	finalSize  = 8 + proofSize
)

// purpose says what a connection is for.
type purpose uint8

const (
	purposeCheckIn purpose = 1 // rank 0 collects all ranks
	purposeLink    purpose = 2 // frames between two ranks
)

// refusal says why a connection is turned down.
type refusal uint8

const (
	accepted       refusal = 0
	refusedVersion refusal = 1
	refusedJob     refusal = 2
	refusedSecret  refusal = 3
	refusedRank    refusal = 4 // not the rank that was called
	refusedSize    refusal = 5 // another number of ranks
	refusedClosed  refusal = 6 // the rank is leaving
	refusedPurpose refusal = 7
	refusedHost    refusal = 8 // a job of one host, called from another one
	refusedSecond  refusal = 9 // there is a process with this rank
)

// hello is the first message.
type hello struct {
	version  uint16
	purpose  purpose
	from, to uint32
	size     uint32
	job      [16]byte
	nonce    [32]byte
}

func (h hello) encode() []byte {
	b := append(make([]byte, 0, helloSize), wireMagic...)
	b = binary.LittleEndian.AppendUint16(b, h.version)
	b = append(b, byte(h.purpose), 0)
	b = binary.LittleEndian.AppendUint32(b, h.from)
	b = binary.LittleEndian.AppendUint32(b, h.to)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, h.job[:]...)
	return append(b, h.nonce[:]...)
}

func decodeHello(b []byte) (hello, error) {
	r := wire.Reader{B: b}
	magic := r.Bytes(4, "hello")
	h := hello{version: r.U16("hello"), purpose: purpose(r.U8("hello"))}
	r.U8("hello")
	h.from, h.to, h.size = r.U32("hello"), r.U32("hello"), r.U32("hello")
	r.U32("hello")
	copy(h.job[:], r.Bytes(16, "hello"))
	copy(h.nonce[:], r.Bytes(32, "hello"))
	if err := r.End("hello"); err != nil {
		return hello{}, err
	}
	if string(magic) != wireMagic {
		return hello{}, fmt.Errorf("%w: connection does not speak this protocol: it begins with %q, expected %q", framework.ErrPeer, magic, wireMagic)
	}
	return h, nil
}

// answer is the second message.
type answer struct {
	version uint16
	refusal refusal
	rank    uint32
	nonce   [32]byte
}

func (a answer) encode() []byte {
	b := append(make([]byte, 0, answerSize), wireMagic...)
	b = binary.LittleEndian.AppendUint16(b, a.version)
	b = append(b, byte(a.refusal), 0)
	b = binary.LittleEndian.AppendUint32(b, a.rank)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(b, a.nonce[:]...)
}

func decodeAnswer(b []byte) (answer, error) {
	r := wire.Reader{B: b}
	magic := r.Bytes(4, "answer")
	a := answer{version: r.U16("answer"), refusal: refusal(r.U8("answer"))}
	r.U8("answer")
	a.rank = r.U32("answer")
	r.U32("answer")
	copy(a.nonce[:], r.Bytes(32, "answer"))
	if err := r.End("answer"); err != nil {
		return answer{}, err
	}
	if string(magic) != wireMagic {
		return answer{}, fmt.Errorf("%w: the other end is not a rank: it answers %q, expected %q", framework.ErrPeer, magic, wireMagic)
	}
	return a, nil
}

func (id identity) prove(who string, h, a []byte) []byte {
	m := hmac.New(sha256.New, id.key)
	m.Write([]byte(who))
	m.Write(h)
	m.Write(a)
	return m.Sum(nil)
}

// call is what both ends of a new connection have to agree on.
type call struct {
	identity
	rank, size int // of this end
	closing    func() bool
	ended      func() bool              // nil: it has not; the job of rank 0, by a failure or by Close
	instance   func() ([16]byte, error) // what links of this job know; nil: what all know. It may wait for rank 0
}

// jobOf names the job for a purpose. Jobs one after another may have one name, at one
// address; a link that was meant for a rank of the one is of no use in the other.
func (c call) jobOf(why purpose) ([16]byte, error) {
	if why != purposeLink || c.instance == nil {
		return c.job, nil
	}
	instance, err := c.instance()
	sum := sha256.Sum256(append(append([]byte("mscclpp link\x00"), c.job[:]...), instance[:]...))
	return [16]byte(sum[:]), err
}

// dial performs the handshake as the one who connected. The caller has set a
// deadline on the connection.
func (c call) dial(conn io.ReadWriter, why purpose, to int) error {
	job, err := c.jobOf(why)
	if err != nil {
		return err
	}
	h := hello{version: wireVersion, purpose: why, from: uint32(c.rank), to: uint32(to), size: uint32(c.size), job: job}
	_, _ = rand.Read(h.nonce[:]) // never fails
	first := h.encode()
	if _, err := conn.Write(first); err != nil {
		return unanswered(err)
	}
	second := make([]byte, answerSize)
	if _, err := io.ReadFull(conn, second); err != nil {
		return unanswered(err)
	}
	a, err := decodeAnswer(second)
	if err != nil {
		return err
	}
	if a.version != wireVersion {
		return fmt.Errorf("%w: rank %d speaks version %d of the bootstrap protocol, this rank speaks version %d: use one release of mscclpp-go in all ranks", framework.ErrPeer, to, a.version, wireVersion)
	}
	if a.refusal != accepted {
		return c.refused(a.refusal, to, 0)
	}
	if _, err := conn.Write(c.prove("client", first, second)); err != nil {
		return unanswered(err)
	}
	final := make([]byte, finalSize)
	if _, err := io.ReadFull(conn, final); err != nil {
		return unanswered(err)
	}
	if r := refusal(final[0]); r != accepted {
		return c.refused(r, to, int(binary.LittleEndian.Uint32(final[4:])))
	}
	if !hmac.Equal(final[8:], c.prove("server", first, second)) || a.rank != uint32(to) {
		return fmt.Errorf("%w: wrong secret: the rank that answered does not know this job's secret", framework.ErrInvalid)
	}
	return nil
}

// Jobs that use the address of rank 0 and will end.
var (
	errOtherJob = errors.New("another job listens there")
	errEnding   = errors.New("a job that ends listens there")
)

func unanswered(err error) error {
	return fmt.Errorf("%w: handshake was not completed: %w", framework.ErrPeer, err)
}

// refused says why the other end turned a connection down.
func (c call) refused(r refusal, by, size int) error {
	switch r {
	case refusedVersion:
		return fmt.Errorf("%w: rank %d does not know version %d of the bootstrap protocol: use one release of mscclpp-go in all ranks", framework.ErrPeer, by, wireVersion)
	case refusedJob:
		return fmt.Errorf("%w: %w: expected job %x", framework.ErrInvalid, errOtherJob, c.job[:8])
	case refusedSecret:
		if c.oneHost {
			return fmt.Errorf("%w: wrong secret: rank %d was started by another user, in another container, or with %s: expected the secret of this user in %s, or the same %s for all ranks", framework.ErrInvalid, by, EnvSecretFile, c.keyFile, EnvSecretFile)
		}
		return fmt.Errorf("%w: wrong secret: rank %d did not accept this rank's secret: expected the same %s for all ranks", framework.ErrInvalid, by, EnvSecretFile)
	case refusedRank:
		return fmt.Errorf("%w: another rank than %d listens there", framework.ErrPeer, by)
	case refusedSize:
		return fmt.Errorf("%w: rank %d is in a job of %d ranks, this rank expects %d: expected the same numbers of hosts and ranks everywhere", framework.ErrInvalid, by, size, c.size)
	case refusedClosed:
		return fmt.Errorf("%w: %w", errEnding, errLeft(by))
	case refusedHost:
		return fmt.Errorf("%w: %s", framework.ErrInvalid, noSecret(c.rank, by))
	case refusedSecond:
		return fmt.Errorf("%w: rank %d is there already: two processes were started with the same rank", framework.ErrInvalid, c.rank)
	}
	return fmt.Errorf("%w: rank %d refused the connection (reason %d)", framework.ErrPeer, by, r)
}

// accept performs the handshake as the one who listened. It returns what the
// other end claims even with an error, for reports; after an error the claim is
// not proved, unless proved says so. Once the other end has authenticated, and before it
// is told so, stays decides whether the connection is kept; nil: it is. One from a host that
// cannot be of the job is turned down at once.
func (c call) accept(conn io.ReadWriter, here bool, stays func() bool) (h hello, proved bool, err error) {
	first := make([]byte, helloSize)
	if _, err := io.ReadFull(conn, first[:6]); err != nil {
		return h, false, unanswered(err)
	}
	a := answer{version: wireVersion, rank: uint32(c.rank)}
	_, _ = rand.Read(a.nonce[:])
	// Another version may have another length, so this comes before the rest.
	if v := binary.LittleEndian.Uint16(first[4:]); string(first[:4]) == wireMagic && v != wireVersion {
		a.refusal = refusedVersion
		_, _ = conn.Write(a.encode())
		return h, false, fmt.Errorf("%w: a rank speaks version %d of the bootstrap protocol, this rank speaks version %d: use one release of mscclpp-go in all ranks", framework.ErrPeer, v, wireVersion)
	}
	if _, err := io.ReadFull(conn, first[6:]); err != nil {
		return h, false, unanswered(err)
	}
	if h, err = decodeHello(first); err != nil {
		return h, false, err
	}
	job, err := c.jobOf(h.purpose)
	if err != nil {
		return h, false, err
	}
	switch {
	case c.oneHost && !here:
		a.refusal, err = refusedHost, fmt.Errorf("%w: %s", framework.ErrInvalid, noSecret(int(h.from), c.rank))
	case h.job != job:
		a.refusal, err = refusedJob, fmt.Errorf("%w: a rank of job %x called, this is job %x", framework.ErrInvalid, h.job[:8], job[:8])
	case h.to != uint32(c.rank):
		a.refusal, err = refusedRank, fmt.Errorf("%w: rank %d was called, this is rank %d", framework.ErrPeer, h.to, c.rank)
	case h.purpose != purposeCheckIn && h.purpose != purposeLink, h.purpose == purposeCheckIn && c.rank != 0:
		a.refusal, err = refusedPurpose, fmt.Errorf("%w: connection of unknown purpose %d", framework.ErrPeer, h.purpose)
	}
	second := a.encode()
	if _, werr := conn.Write(second); err != nil || werr != nil {
		if err == nil {
			err = unanswered(werr)
		}
		return h, false, err
	}
	proof := make([]byte, proofSize)
	if _, err := io.ReadFull(conn, proof); err != nil {
		return h, false, unanswered(err)
	}
	final := make([]byte, 8, finalSize)
	binary.LittleEndian.PutUint32(final[4:], uint32(c.size))
	switch {
	case !hmac.Equal(proof, c.prove("client", first, second)):
		final[0], err = byte(refusedSecret), fmt.Errorf("%w: wrong secret: whoever claims to be rank %d does not know it", framework.ErrInvalid, h.from)
	case stays != nil && !stays():
		return h, false, unanswered(net.ErrClosed)
	case h.size != uint32(c.size):
		proved = true
		final[0], err = byte(refusedSize), fmt.Errorf("%w: rank %d expects a job of %d ranks, rank %d expects %d: expected the same numbers of hosts and ranks everywhere", framework.ErrInvalid, h.from, h.size, c.rank, c.size)
	case h.from == h.to && c.ended != nil && c.ended():
		final[0], err = byte(refusedClosed), failure.ErrClosed // it is for the next job at this address
	case h.from == h.to:
		final[0], err = byte(refusedSecond), fmt.Errorf("%w: a second process is rank %d", framework.ErrInvalid, h.from)
	case h.from >= uint32(c.size):
		proved = true
		final[0], err = byte(refusedRank), fmt.Errorf("%w: connection of rank %d: expected another rank below %d", framework.ErrInvalid, h.from, c.size)
	case c.closing != nil && c.closing():
		proved = true
		final[0], err = byte(refusedClosed), failure.ErrClosed
	}
	if err != nil {
		final = append(final, make([]byte, proofSize)...)
	} else {
		final = append(final, c.prove("server", first, second)...)
	}
	if _, werr := conn.Write(final); werr != nil && err == nil {
		err = unanswered(werr)
	}
	return h, proved || err == nil, err
}
