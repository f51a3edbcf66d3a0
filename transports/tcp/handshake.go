package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Each stream begins with four messages of fixed size, little endian:
//
//	C→S  "MTCS" | u16 version | u8 stream | u8 streams | u32 from | u32 to | u64 endpoint | group, 16 | nonce, 32
//	S→C  "MTCS" | u16 version | u8 refusal | u8 0 | nonce, 32
//	C→S  HMAC-SHA256(secret, "client" | first message | second message)
//	S→C  u8 refusal | 7 bytes 0 | HMAC-SHA256(secret, "server" | first | second)
//
// The secret is that of the receiving endpoint. The peer alone has it, through the bootstrap, which
// is authenticated. Magic and version stay at the front in every version. The server proves itself
// last: it shows no function of the secret to a client that has not proved to know it.
const (
	streamMagic   = "MTCS"
	streamVersion = 1

	helloBytes = 72
	replyBytes = 40
	proofBytes = sha256.Size
	finalBytes = 8 + proofBytes
)

// refusal says why a stream is turned down.
type refusal uint8

const (
	accepted        refusal = 0
	refusedVersion  refusal = 1
	refusedEndpoint refusal = 2
	refusedSecret   refusal = 3
	refusedRank     refusal = 4
	refusedStream   refusal = 5
)

// Error makes a refusal part of the error at the end that called.
func (r refusal) Error() string {
	switch r {
	case refusedVersion:
		return fmt.Sprintf("it does not know version %d of the protocol: use one release in all ranks", streamVersion)
	case refusedEndpoint:
		return "no such endpoint is there: it was closed, or another process listens at that address"
	case refusedSecret:
		return "it did not accept this rank's proof"
	case refusedRank:
		return "the endpoint belongs to another pair of ranks"
	case refusedStream:
		return "the stream does not belong to a group that is open"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// hello is the first message.
type hello struct {
	version         uint16
	stream, streams uint8
	handed          bool // the ranks drive it
	from, to        uint32
	endpoint        uint64
	group           [16]byte // streams of one proxy to one peer
	nonce           [32]byte
}

func (h hello) append(b []byte) []byte {
	b = append(b, streamMagic...)
	b = order.AppendUint16(b, h.version)
	b = append(b, h.stream, h.streams|handedBit(h.handed))
	b = order.AppendUint32(b, h.from)
	b = order.AppendUint32(b, h.to)
	b = order.AppendUint64(b, h.endpoint)
	b = append(b, h.group[:]...)
	return append(b, h.nonce[:]...)
}

// handedFlag is part of the number of streams: the ranks drive these themselves.
const handedFlag = 0x80

func handedBit(handed bool) byte {
	if handed {
		return handedFlag
	}
	return 0
}

func decodeHello(b []byte) (hello, error) {
	if len(b) != helloBytes || string(b[:4]) != streamMagic {
		return hello{}, fmt.Errorf("%w: a connection that is no stream of %s", framework.ErrPeer, Name)
	}
	h := hello{
		version: order.Uint16(b[4:]), stream: b[6], streams: b[7] &^ handedFlag, handed: b[7]&handedFlag != 0,
		from: order.Uint32(b[8:]), to: order.Uint32(b[12:]), endpoint: order.Uint64(b[16:]),
	}
	copy(h.group[:], b[24:])
	copy(h.nonce[:], b[40:])
	if h.streams == 0 || h.streams > maxStreams || h.stream >= h.streams {
		return hello{}, fmt.Errorf("%w: stream %d of %d: expected up to %d", framework.ErrPeer, h.stream, h.streams, maxStreams)
	}
	return h, nil
}

// reply is the second message.
type reply struct {
	version uint16
	refusal refusal
	nonce   [32]byte
}

func (r reply) append(b []byte) []byte {
	b = append(b, streamMagic...)
	b = order.AppendUint16(b, r.version)
	b = append(b, byte(r.refusal), 0)
	return append(b, r.nonce[:]...)
}

func decodeReply(b []byte) (reply, error) {
	if len(b) != replyBytes || string(b[:4]) != streamMagic {
		return reply{}, fmt.Errorf("%w: the peer that answers is no plugin of %s", framework.ErrPeer, Name)
	}
	r := reply{version: order.Uint16(b[4:]), refusal: refusal(b[6])}
	copy(r.nonce[:], b[8:])
	return r, nil
}

func prove(secret [32]byte, side string, first, second []byte) []byte {
	m := hmac.New(sha256.New, secret[:])
	m.Write([]byte(side))
	m.Write(first)
	m.Write(second)
	return m.Sum(nil)
}

// errBrokenOff: the other end has closed the connection without a reason.
var errBrokenOff = errors.New("the connection was closed")

// greet performs the handshake as the side that connected. The caller has set a deadline on the
// connection.
func greet(conn io.ReadWriter, secret [32]byte, h hello) error {
	broken := func(err error) error {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		return fmt.Errorf("%w: handshake was not completed: %w", framework.ErrPeer, err)
	}
	h.version = streamVersion
	_, _ = rand.Read(h.nonce[:]) // never fails
	first := h.append(nil)
	if _, err := conn.Write(first); err != nil {
		return broken(err)
	}
	second := make([]byte, replyBytes)
	if _, err := io.ReadFull(conn, second); err != nil {
		return broken(err)
	}
	r, err := decodeReply(second)
	switch {
	case err != nil:
		return err
	case r.version != streamVersion:
		return fmt.Errorf("%w: it speaks version %d of the protocol, this rank version %d: use one release in all ranks", framework.ErrPeer, r.version, streamVersion)
	case r.refusal != accepted:
		return fmt.Errorf("%w: refused: %w", framework.ErrPeer, r.refusal)
	}
	if _, err := conn.Write(prove(secret, "client", first, second)); err != nil {
		return broken(err)
	}
	final := make([]byte, finalBytes)
	if _, err := io.ReadFull(conn, final); err != nil {
		return broken(err)
	}
	if r := refusal(final[0]); r != accepted {
		return fmt.Errorf("%w: refused: %w", framework.ErrPeer, r)
	}
	if !hmac.Equal(final[8:], prove(secret, "server", first, second)) {
		return fmt.Errorf("%w: the peer that answers does not know the endpoint's secret: it is not the rank that listens there", framework.ErrPeer)
	}
	return nil
}

// welcome performs the handshake as the side that listened. Look finds the endpoint's secret; join
// is asked whether the stream is wanted after it has proved itself, and fails if the connection is
// not to be answered any more.
func welcome(conn io.ReadWriter, look func(hello) ([32]byte, refusal), join func(hello) (refusal, error)) (hello, error) {
	first := make([]byte, helloBytes)
	if _, err := io.ReadFull(conn, first[:6]); err != nil {
		return hello{}, err
	}
	r := reply{version: streamVersion}
	_, _ = rand.Read(r.nonce[:])
	// Another version may have another length, so this comes before the rest.
	if v := order.Uint16(first[4:]); string(first[:4]) == streamMagic && v != streamVersion {
		r.refusal = refusedVersion
		_, err := conn.Write(r.append(nil))
		return hello{}, fmt.Errorf("%w: a stream of version %d: expected %d (%v)", framework.ErrPeer, v, streamVersion, err)
	}
	if _, err := io.ReadFull(conn, first[6:]); err != nil {
		return hello{}, err
	}
	h, err := decodeHello(first)
	if err != nil {
		return hello{}, err
	}
	var secret [32]byte
	secret, r.refusal = look(h)
	second := r.append(nil)
	if _, err := conn.Write(second); err != nil {
		return hello{}, err
	}
	if r.refusal != accepted {
		return hello{}, fmt.Errorf("%w: refused: %w", framework.ErrPeer, r.refusal)
	}
	proof := make([]byte, proofBytes)
	if _, err := io.ReadFull(conn, proof); err != nil {
		return hello{}, err
	}
	final, why := make([]byte, finalBytes), refusedSecret
	if hmac.Equal(proof, prove(secret, "client", first, second)) {
		if why, err = join(h); err != nil {
			return hello{}, err
		}
	}
	if final[0] = byte(why); why == accepted {
		copy(final[8:], prove(secret, "server", first, second))
	}
	if _, err := conn.Write(final); err != nil {
		return h, err
	}
	if why != accepted {
		return hello{}, fmt.Errorf("%w: refused: %w", framework.ErrPeer, why)
	}
	return h, nil
}

// handed are streams that the ranks at both ends drive themselves. This process keeps
// duplicates, to see whether the peer's host is alive: a host that loses its power
// closes nothing. When it gives the host up it hangs up, which the rank sees. When the
// rank dies this process does, and then the last duplicates are closed.
type handed struct {
	group [16]byte
	wires []*wire
	left  int // streams that have not arrived

	once sync.Once
	over chan struct{}
}
