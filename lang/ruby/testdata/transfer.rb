# frozen_string_literal: true

# Sleeps in a Fiber that was transferred to, or resumed. Argument: transfer or resume.

require "fiber"

def inner = sleep
def work = inner

fiber = Fiber.new { work }
puts "ready #{Process.pid}"
$stdout.flush
fiber.public_send(ARGV[0])
