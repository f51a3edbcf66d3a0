package wire

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The answers of a plugin are checked before the rank acts on them: an answer that makes no sense
// is ErrPlugin here, and not a crash of the rank later.

// checkDescription rejects what no caller could work with.
func checkDescription(d framework.Description) error {
	if d.Name == "" {
		return nonsense("description without a name")
	}
	for _, k := range d.Channels {
		if k < framework.KindMemory || k > framework.KindSwitch {
			return nonsense("description of %s claims %v", d.Name, k)
		}
	}
	return nil
}

// checkEndpoint rejects objects that no device could create.
func checkEndpoint(e framework.Endpoint) error {
	for i, o := range e.Create {
		if o.Kind != framework.ObjectMulticast || o.Bytes == 0 || o.Ranks < 1 {
			return nonsense("object %d of the endpoint: kind %d, %d bytes, %d ranks", i, o.Kind, o.Bytes, o.Ranks)
		}
	}
	return nil
}

// checkAttachment rejects steps that refer to what does not exist.
func checkAttachment(a framework.Attachment) error {
	for i, m := range a.Mappings {
		if m.Role < framework.RolePeer || m.Role > framework.RoleStream || m.Peer < -1 {
			return nonsense("mapping %d: role %d, peer %d", i, m.Role, m.Peer)
		}
		if m.Offset+m.Bytes < m.Offset {
			return nonsense("mapping %d: %d bytes at %d", i, m.Bytes, m.Offset)
		}
	}
	for i, s := range a.Steps {
		uses := s.Op == framework.StepImport || s.Op == framework.StepMap
		switch {
		case s.Op < framework.StepImport || s.Op > framework.StepBarrier:
			return nonsense("step %d: verb %d", i, s.Op)
		case uses && (s.Mapping < 0 || s.Mapping >= len(a.Mappings)):
			return nonsense("step %d: mapping %d of %d", i, s.Mapping, len(a.Mappings))
		case s.Object < 0 || s.Slot < 0:
			return nonsense("step %d: object %d, slot %d", i, s.Object, s.Slot)
		case s.Offset+s.Bytes < s.Offset:
			return nonsense("step %d: %d bytes at %d", i, s.Bytes, s.Offset)
		}
	}
	return nil
}

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: the plugin's answer makes no sense: "+format, append([]any{framework.ErrPlugin}, args...)...)
}
