package plugins

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/programdir"
	"github.com/mscclpp-go/mscclpp/internal/socketdir"
)

// Folder returns the folder that contains the program of this plugin, or of this process
// if it is no plugin: for kernels and other files that come with it. It need not be the
// folder of os.Executable, for the host may execute a copy of the file. The folder is the
// one that contained the file when the host opened it, even if its name leads elsewhere
// now.
func Folder() (string, error) { return programdir.Get() }

// takeFolder takes over the folder that the host has opened.
func takeFolder() {
	dir := os.Getenv(folderKey)
	if dir == "" {
		return // an older host
	}
	if fd, err := strconv.Atoi(filepath.Base(dir)); err == nil && dir == inheritedPath(fd) {
		unix.CloseOnExec(fd)
	}
	programdir.Set(dir)
}

// listen returns where the plugin serves: the connection that it has inherited, or with an
// older host, which offers none, a socket in the folder that the host has made.
func listen() (net.Listener, string, error) {
	if os.Getenv(connectionKey) == "" {
		socket := ownSocket()
		l, err := net.Listen("unix", socket)
		if err != nil {
			return nil, "", fmt.Errorf("%w: socket for gRPC %q: %w", framework.ErrUnavailable, socket, err)
		}
		return l, socket, nil
	}
	file, err := inheritedSocket(connectionKey)
	if err != nil {
		return nil, "", err
	}
	defer file.Close() // FileConn duplicates it
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, "", fmt.Errorf("%w: connection for gRPC: %w", framework.ErrInvalid, err)
	}
	l := &inherited{conns: make(chan net.Conn, 1), addr: conn.LocalAddr()}
	l.conns <- conn
	return l, inheritedAddress, nil
}

// ownSocket is the path of the plugin's socket; "" if it needs none.
func ownSocket() string {
	dir := os.Getenv(goplugin.EnvUnixSocketDir)
	if dir == "" || os.Getenv(connectionKey) != "" {
		return ""
	}
	return filepath.Join(dir, "socket")
}

// inherited is a listener with one connection, which is there already.
type inherited struct {
	conns chan net.Conn
	addr  net.Addr
}

// Accept implements net.Listener: it gives the connection, and then waits for ever, for
// the process ends with its connection.
func (l *inherited) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *inherited) Close() error {
	close(l.conns)
	return nil
}

// Addr implements net.Listener.
func (l *inherited) Addr() net.Addr { return l.addr }

// shakeHands prints the one line that a host reads from standard output.
func shakeHands(address string) error {
	spoken := strings.Split(os.Getenv(versionsKey), ",")
	// Without a common version the host reads ours, and says so.
	if os.Getenv(versionsKey) != "" && !slices.Contains(spoken, strconv.Itoa(ProtocolVersion)) {
		fmt.Fprintf(os.Stderr, "the host speaks versions %s of the protocol, this plugin speaks %d\n", os.Getenv(versionsKey), ProtocolVersion)
	}
	_, err := fmt.Fprintf(handshakeOut, "%d|%d|unix|%s|grpc\n", handshakeVersion, ProtocolVersion, address)
	return err
}

// handshakeVersion is the version of the handshake itself.
const handshakeVersion = goplugin.CoreProtocolVersion

// removeOwnSocket removes the socket that this plugin made in the folder of its host, and
// the folder, if the host did not live to do so.
func removeOwnSocket() {
	socket := ownSocket()
	if socket == "" {
		return
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	dir := filepath.Dir(socket)
	for range 2 { // an older host makes a folder in the folder
		if name := filepath.Base(dir); !socketdir.Made(name) && !strings.HasPrefix(name, "plugin-dir") {
			return
		}
		_ = unix.Rmdir(dir)
		dir = filepath.Dir(dir)
	}
}
