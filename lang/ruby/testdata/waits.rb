# frozen_string_literal: true

# Threads that wait in each of Ruby's own calls. For each it prints "wait NAME TID KIND CLASS OTHER": the
# kind of the wait, the type of what it waits for, and the name of the thread that holds that or that is
# waited for. Then it prints "ready" and waits for a thread that does not end.
require "monitor"

$stdout.sync = true
MUTEX, OTHER, LEFT, RIGHT = Array.new(4) { Mutex.new }
MONITOR = Monitor.new
GUARD = Monitor.new
FULL = SizedQueue.new(1).tap { |q| q << 1 }
WORK = Queue.new
RESULT = Queue.new
SIGNAL = ConditionVariable.new
CHANGED = GUARD.new_cond
THREADS = {}

def start(name, kind, type = "-", other = "-", &block)
  up = Queue.new
  t = Thread.new do
    Thread.current.name = name
    block.call(-> { up << 1 })
  end
  up.pop
  puts "wait #{name} #{t.native_thread_id} #{kind} #{type} #{other}"
  THREADS[name] = t
end

def result(up)
  up.call
  RESULT.pop
end

start("holder", "sleep") { |up| MUTEX.synchronize { up.call; sleep 7200 } }
start("forever", "sleep") { |up| up.call; sleep }
start("owner", "condition", "Thread::Queue") { |up| MONITOR.synchronize { result(up) } }
start("locker", "mutex", "Ruby", "holder") { |up| up.call; MUTEX.lock }
start("synchronizer", "mutex", "Ruby", "holder") { |up| up.call; MUTEX.synchronize { 0 } }
start("enterer", "mutex", "Ruby", "owner") { |up| up.call; MONITOR.enter }
start("waiter", "condition", "Ruby") { |up| OTHER.synchronize { up.call; SIGNAL.wait(OTHER) } }
start("guard", "condition", "Ruby") { |up| GUARD.synchronize { up.call; CHANGED.wait } }
start("worker", "condition", "Thread::Queue") { |up| up.call; loop { WORK.pop } }
start("pusher", "condition", "Thread::SizedQueue") { |up| up.call; FULL << 2 }
start("joiner", "join", "Ruby", "holder") { |up| up.call; THREADS["holder"].join }
both = Queue.new
start("left", "mutex", "Ruby", "right") { |up| LEFT.lock; up.call; both.pop; RIGHT.lock }
start("right", "mutex", "Ruby", "left") { |up| RIGHT.lock; up.call; both.pop; LEFT.lock }
2.times { both << 1 }
puts "wait main #{Thread.main.native_thread_id} join Ruby holder"
puts "ready"
THREADS["holder"].join
