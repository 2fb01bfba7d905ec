package stdio

// waiter is nothing here: a read holds its buffer while it waits.
type waiter struct{}

func (s *source) open() {}

func (s *source) read() (int, error) { return s.from.Read(s.room()) }
