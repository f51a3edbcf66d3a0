package gpus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Messages are records on a socket that keeps their borders: a header, and bytes. The client's declaration is in
// framework/device/hip/emulated/driver/machine.cc.
type header struct {
	Kind   uint32
	Device int32 // of the machine, or -1
	Own    int32 // the same device by the client's numbers
	Result int32
	ID     uint64
	// Of memory: where the client has it, how much, and at which place in its file.
	Address, Bytes, Offset uint64
	Value                  [2]uint64
	Grid, Block            uint32
}

// Kinds of messages of clients…
const (
	hello  = 1 + iota // the bytes are the GPUs' name
	code              // a code object, in a file; answered by result
	device            // memory of a device, in a file; Value[0]: how it was allocated
	host              // memory of the host, which the client alone can access
	forget            // memory that begins at an address
	launch            // Value[0]: the code object; the bytes are the kernel's name, 0, and arguments; answered by result
	value             // the answer to an access
	alive             // answered by result at once, also while kernels run
)

// …and of the server.
const (
	result = 101 + iota // Result is 0, or an error, whose words the bytes are
	access              // to memory of the host: Result is the operation
)

// Operations of an access.
const (
	loads = iota
	stores
	adds
	swaps
)

const headerBytes = 72

// maxMessage bounds what a client sends.
const maxMessage = headerBytes + 64<<10

// receive returns the next message, and the file that came with it. io.EOF: the client is gone.
func receive(c *net.UnixConn, buffer []byte) (h header, rest []byte, file *os.File, err error) {
	rights := make([]byte, syscall.CmsgSpace(4))
	n, rn, _, _, err := c.ReadMsgUnix(buffer, rights)
	if err == nil && n == 0 || errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	if err != nil {
		return h, nil, nil, err
	}
	if rn > 0 {
		if file, err = fileOf(rights[:rn]); err != nil {
			return h, nil, nil, err
		}
	}
	if n < headerBytes {
		return h, nil, file, fmt.Errorf("message of %d bytes: expected at least %d", n, headerBytes)
	}
	err = binary.Read(bytes.NewReader(buffer[:headerBytes]), binary.LittleEndian, &h)
	return h, buffer[headerBytes:n], file, err
}

func fileOf(rights []byte) (*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, fmt.Errorf("%d control messages: expected one", len(messages))
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors: expected one", len(fds))
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "memory of a client"), nil
}

func send(c *net.UnixConn, h *header, rest []byte) error {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		return err
	}
	b.Write(rest)
	_, err := c.Write(b.Bytes())
	return err
}
