package kernel

// TriggerFields are the fields of a trigger, for code that packs one. Where a field does not apply,
// it is 0: a signal moves no bytes.
type TriggerFields struct {
	Kind  uint64 // TriggerData, TriggerSignal and TriggerFlush, or several of them
	Bytes uint64 // to move; below 4 GiB, as the offsets
	From  uint64 // byte offset in the source
	To    uint64 // byte offset in the target
	Src   uint32 // number of the source memory, below 512
	Dst   uint32 // number of the target memory, below 512
	Slot  uint32 // number of the semaphore, below 1024
}

// Where fields begin in the second word. Bit 63 belongs to the ring.
const (
	triggerSrc  = 32
	triggerDst  = 41
	triggerKind = 50
	triggerSlot = 53

	triggerHalf   = 1<<32 - 1
	triggerMemory = 1<<9 - 1
	triggerKinds  = 1<<3 - 1
	triggerSlots  = 1<<10 - 1
)

// Pack returns the trigger. Fields that are too large are cut off.
func (f TriggerFields) Pack() Trigger {
	return Trigger{
		Fst: f.Bytes&triggerHalf | f.From<<32,
		Snd: f.To&triggerHalf | uint64(f.Src&triggerMemory)<<triggerSrc | uint64(f.Dst&triggerMemory)<<triggerDst |
			f.Kind&triggerKinds<<triggerKind | uint64(f.Slot&triggerSlots)<<triggerSlot,
	}
}

// Kind returns what is asked for: TriggerData, TriggerSignal and TriggerFlush.
func (t Trigger) Kind() uint64 { return t.Snd >> triggerKind & triggerKinds }

// Bytes returns how many bytes are to be moved.
func (t Trigger) Bytes() uint64 { return t.Fst & triggerHalf }

// From returns the byte offset in the source.
func (t Trigger) From() uint64 { return t.Fst >> 32 }

// To returns the byte offset in the target.
func (t Trigger) To() uint64 { return t.Snd & triggerHalf }

// Src returns the number of the source memory.
func (t Trigger) Src() uint32 { return uint32(t.Snd >> triggerSrc & triggerMemory) }

// Dst returns the number of the target memory.
func (t Trigger) Dst() uint32 { return uint32(t.Snd >> triggerDst & triggerMemory) }

// Slot returns the number of the semaphore.
func (t Trigger) Slot() uint32 { return uint32(t.Snd >> triggerSlot & triggerSlots) }
