package session

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
)

// Session is one program under construction. One thread at a time may use it.
type Session struct {
	p          *dsl.Program
	memories   []dsl.MemoryChannel
	ports      []dsl.PortChannel
	switches   []dsl.SwitchChannel
	semaphores []dsl.Semaphore
	groups     []*dsl.Group
}

// Made is the answer to the making of a channel or semaphore: the session's number and that of the plan.
type Made struct {
	Handle int `json:"handle"`
	ID     int `json:"id"`
}

func keep[T any](s *Session, list *[]T, x T, id int) (any, error) {
	if err := s.p.Err(); err != nil {
		return nil, err
	}
	*list = append(*list, x)
	return Made{len(*list) - 1, id}, nil
}

// pick returns element i of what the session has made.
func pick[T any](list []T, i int, what string) (T, error) {
	if i < 0 || i >= len(list) {
		var none T
		return none, &dsl.Error{Kind: dsl.IndexError, Text: fmt.Sprintf("no %s %d: the session has made %d", what, i, len(list))}
	}
	return list[i], nil
}
