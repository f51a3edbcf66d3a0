package enginetest

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// sshd is a real server on the loopback, with keys that exist for it alone, and returns
// the command that reaches it: the hosts a and b are this machine and have an identity
// each, strange has another key than the one that is known, and down does not listen.
func sshd(t *testing.T) string {
	t.Helper()
	client, keygen := installed(t, "ssh"), installed(t, "ssh-keygen")
	server := "/usr/sbin/sshd" // wants to be called by its whole path
	if _, err := os.Stat(server); err != nil {
		t.Skip("no sshd: install openssh-server, see scripts/deps.sh engines")
	}
	me, err := user.Current()
	if err != nil {
		t.Skipf("needs a user with a name, for ssh: %v", err)
	}
	if me.Uid == "0" {
		emptyFolder(t, "/run/sshd")
	}
	dir, port := t.TempDir(), freePort(t)
	for _, name := range []string{"host", "other", "user"} {
		if code, out, errs := runs(t, nil, keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", filepath.Join(dir, name)); code != 0 {
			t.Fatalf("ssh-keygen: code %d, %s, %s", code, out, errs)
		}
	}
	known, hosts := "", "Host down\n  Port 1\n"
	for name, key := range map[string]string{"a": "host", "b": "host", "strange": "other"} {
		public, err := os.ReadFile(filepath.Join(dir, key+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		known += name + " " + string(public)
		hosts += "Host " + name + "\n  HostKeyAlias " + name + "\n  SetEnv MSCCLPP_HOSTID=" + name + "\n"
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"known": known,
		"sshd": fmt.Sprintf("ListenAddress 127.0.0.1\nPort %d\nHostKey %s\nAuthorizedKeysFile %s\nAcceptEnv MSCCLPP_HOSTID\n"+
			"PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
			port, at("host"), at("user.pub")),
		"ssh": hosts + fmt.Sprintf("Host *\n  HostName 127.0.0.1\n  Port %d\n  User %s\n  IdentityFile %s\n  IdentitiesOnly yes\n"+
			"  UserKnownHostsFile %s\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n", port, me.Username, at("user"), at("known")),
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := program(t, 3*patience, nil, server, "-D", "-e", "-f", at("sshd"))
	log := s.follow(t)
	t.Cleanup(func() {
		_ = s.Cancel()
		_ = s.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", log)
		}
	})
	log.await(t, "Server listening on ", 1)
	if code, _, errs := runs(t, nil, client, "-F", at("ssh"), "-o", "BatchMode=yes", "a", "true"); code != 0 {
		if strings.Contains(log.String(), "account is locked") {
			t.Skipf("needs an account that sshd lets in: that of %s is locked", me.Username)
		}
		t.Fatalf("ssh a true: code %d, %s", code, errs)
	}
	return client + " -F " + at("ssh") + " -T -o BatchMode=yes -o ConnectTimeout=30"
}

// emptyFolder makes sure of one that a server of root's insists on, as its package does
// at boot.
func emptyFolder(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err == nil {
		t.Cleanup(func() { os.Remove(dir) })
	} else if !os.IsExist(err) {
		t.Fatal(err)
	}
}

// A shell's words, the path of the agent, bytes that are no text and codes come through
// a real ssh as they are, and what it says of a host that it does not reach is passed on.
func TestRealSSH(t *testing.T) {
	ssh := []string{runner, "--ssh", sshd(t), "--host"}
	job := func(hosts string, args ...string) []string {
		return append(append([]string{}, append(ssh, hosts)...), args...)
	}
	t.Run("collectives", func(t *testing.T) {
		crosses(t, []string{builtPlugins(t)}, job("a,b", check...)...)
	})
	t.Run("words", func(t *testing.T) {
		here := filepath.Join(t.TempDir(), "it's here") // where no shell may take it apart
		if err := os.Symlink(runner, here); err != nil {
			t.Fatal(err)
		}
		s := program(t, 2*patience, []string{"MSCCLPP_LOG__LEVEL=info"}, job("a,b", "--agent", here, "--tag-output",
			"sh", "-c", `test $RANK != 0 || od -An -tx1; echo "$MSCCLPP_HOSTID, $MSCCLPP_LOG__LEVEL, $1"; exit $((RANK * 7))`, "sh", `a  "b" $c 'd' ;`)...)
		s.Stdin = strings.NewReader("\x00re\xffad\n")
		err := s.Run()
		for _, want := range []string{"[0]  00 72 65 ff 61 64 0a\n", "[0] a, info, a  \"b\" $c 'd' ;\n", "[1] b, info, a  \"b\" $c 'd' ;\n"} {
			if !strings.Contains(s.out.String(), want) {
				t.Errorf("lacks %q: %v, %s%s", want, err, s.out.String(), s.errs.String())
			}
		}
		if code := s.ProcessState.ExitCode(); code != 7 || !strings.Contains(s.errs.String(), "host b: rank 1 (pid ") {
			t.Errorf("code %d, %s: expected that of rank 1", code, s.errs.String())
		}
	})
	// Each alone: the launcher does not wait for a slow one once another has failed.
	for host, want := range map[string]string{"strange": "Host key verification failed", "down": "Connection refused"} {
		t.Run(host, func(t *testing.T) {
			code, _, errs := runs(t, nil, job(host, "true")...)
			if code != 1 || !strings.Contains(errs, "host "+host+": unavailable: cannot be reached") || !strings.Contains(errs, want) {
				t.Errorf("code %d, lacks %q: %s", code, want, errs)
			}
		})
	}
}
